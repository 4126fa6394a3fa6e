//! An audit as one page: requests over time, what each kept of the one before, and why not more.
//!
//! Owns the page. It stands alone: no script, no font, no image from elsewhere; everything from the
//! log is escaped.

use std::fmt::Write;

use super::{Audit, AuditedRequest};

const STYLE: &str = "
:root { color-scheme: light dark; --kept: #4c9f70; --new: #6b8fd6; --lost: #d2694b; --line: #8884; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .2rem .6rem .2rem 0;
border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right;
font-variant-numeric: tabular-nums; } .bar { display: flex; height: .9rem; min-width: 12rem; }
.kept { background: var(--kept); } .new { background: var(--new); } .lost { background: var(--lost); }
.key span { display: inline-block; width: .9rem; height: .9rem; vertical-align: -.1rem; margin: 0 .3rem 0 1rem; }
.break td { font-weight: 600; } code { font-size: .9em; } .quiet { opacity: .7; }";

/// The page for `audit`.
pub fn html(audit: &Audit) -> String {
    let mut out = String::with_capacity(16 * 1024 + audit.requests.len() * 400);
    // Writing to a string cannot fail.
    let _ = page(audit, &mut out);
    out
}

fn page(audit: &Audit, out: &mut String) -> std::fmt::Result {
    let summary = &audit.summary;
    let session = escape(&audit.session);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Requests of {session}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>Requests of session <code>{session}</code></h1><p>{} requests, {} in all; {} kept as a prefix of the \
         request before, {} lost in {} breaks.</p>",
        summary.requests,
        size(summary.bytes),
        size(summary.kept_bytes),
        size(summary.lost_bytes),
        summary.breaks
    )?;
    if !summary.by_cause.is_empty() {
        write!(
            out,
            "<h2>Breaks by cause</h2><table><tr><th>cause</th><th class=\"n\">breaks</th><th class=\"n\">lost</th></tr>"
        )?;
        for sum in &summary.by_cause {
            write!(
                out,
                "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                sum.cause,
                sum.breaks,
                size(sum.lost_bytes)
            )?;
        }
        out.push_str("</table>");
    }
    for habit in &summary.habits {
        write!(
            out,
            "<p>A habit: <b>{}</b> broke the prefix in {} requests in a row (events {} to {}), {} lost.</p>",
            habit.cause,
            habit.requests,
            habit.from,
            habit.to,
            size(habit.lost_bytes)
        )?;
    }
    out.push_str(
        "<h2>Requests</h2><p class=\"key\"><span class=\"kept\"></span>kept prefix<span class=\"new\"></span>new\
         <span class=\"lost\"></span>sent again behind a break</p><table><tr><th class=\"n\">event</th>\
         <th>step</th><th class=\"n\">messages</th><th class=\"n\">bytes</th><th></th><th class=\"n\">cache read</th>\
         <th>why</th></tr>",
    );
    let largest = audit.requests.iter().map(|request| request.bytes).max().unwrap_or(1).max(1);
    for request in &audit.requests {
        row(request, largest, out)?;
    }
    out.push_str("</table>");
    if !audit.problems.is_empty() {
        out.push_str("<h2>What no provider takes</h2><ul>");
        for problem in &audit.problems {
            let call = problem.call.as_deref().map(|call| format!(", call <code>{}</code>", escape(call)));
            write!(out, "<li>node {}{}: {}</li>", problem.seq, call.unwrap_or_default(), problem.what)?;
        }
        out.push_str("</ul>");
    }
    out.push_str("</body></html>\n");
    Ok(())
}

fn row(request: &AuditedRequest, largest: u64, out: &mut String) -> std::fmt::Result {
    let step = match (request.turn, request.step) {
        (Some(turn), Some(step)) if request.attempt > 1 => format!("{turn}.{step}.{}", request.attempt),
        (Some(turn), Some(step)) => format!("{turn}.{step}"),
        _ => String::new(),
    };
    let lost = request.lost_bytes().min(request.bytes.saturating_sub(request.kept_bytes));
    let new = request.bytes.saturating_sub(request.kept_bytes + lost);
    let width = |bytes: u64| bytes.saturating_mul(1000) / largest;
    let mut why = String::new();
    for cause in &request.causes {
        write!(why, "{} {}; ", cause.name(), escape(&cause.detail()))?;
    }
    if request.series {
        why.push_str("<span class=\"quiet\">declared series</span> ");
    }
    if request.process_boundary {
        let drift = if request.extends { "no drift" } else { "drift" };
        write!(why, "<span class=\"quiet\">process boundary, {drift}</span>")?;
    }
    write!(
        out,
        "<tr{}><td class=\"n\">{}</td><td>{step}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td><div class=\"bar\">",
        if request.extends { "" } else { " class=\"break\"" },
        request.seq,
        request.messages,
        request.bytes
    )?;
    for (class, bytes) in [("kept", request.kept_bytes), ("lost", lost), ("new", new)] {
        if bytes > 0 {
            let share = width(bytes);
            write!(
                out,
                "<div class=\"{class}\" style=\"width:{}.{}%\" title=\"{bytes} bytes\"></div>",
                share / 10,
                share % 10
            )?;
        }
    }
    let read = request.cache_read_tokens.map(|tokens| tokens.to_string()).unwrap_or_default();
    write!(out, "</div></td><td class=\"n\">{read}</td><td>{why}</td></tr>")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_says_cannot_become_markup() {
        assert_eq!(escape("<script>\"&'\u{0}"), "&lt;script&gt;&quot;&amp;&#39; ");
    }
}
