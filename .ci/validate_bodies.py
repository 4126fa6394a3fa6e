#!/usr/bin/env python3
"""Checks request bodies against the providers' own published request types.

Usage: validate_bodies.py FOLDER...

Each folder holds `anthropic`, `openai-chat`, `openai-responses` and `gemini`, with a body in each
`*.json`. By default the golden bodies of the project are checked. Installs nothing and reaches no
network: see requirements.txt. A key that the provider's type does not name is an error, except the
few listed in EXTRA, each with its reason.
"""

import json
import sys
from pathlib import Path
from typing import Any, List, Optional

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError


from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming as AnthropicOnce,
    MessageCreateParamsStreaming as AnthropicStream,
)
from google.genai import types as gemini
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming as ChatOnce,
    CompletionCreateParamsStreaming as ChatStream,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming as ResponsesOnce,
    ResponseCreateParamsStreaming as ResponsesStream,
)

# Keys that are sent on purpose and stand in no SDK type.
EXTRA = {
    "anthropic": {
        "temperature": "older models only; the SDK has dropped it",
        "top_p": "older models only; the SDK has dropped it",
        "top_k": "older models only; the SDK has dropped it",
    },
    "openai-chat": {
        "thinking": "DeepSeek's dialect",
        "reasoning_content": "DeepSeek's dialect, inside assistant messages",
    },
    "openai-responses": {},
    "gemini": {},
}


class GeminiRequest(BaseModel):
    """The body of generateContent, of the SDK's types."""

    model_config = ConfigDict(extra="forbid")
    generationConfig: gemini.GenerationConfig
    toolConfig: Optional[gemini.ToolConfig] = None
    tools: Optional[List[gemini.Tool]] = None
    systemInstruction: Optional[gemini.Content] = None
    contents: List[gemini.Content]


ADAPTERS = {
    ("anthropic", False): TypeAdapter(AnthropicOnce),
    ("anthropic", True): TypeAdapter(AnthropicStream),
    ("openai-chat", False): TypeAdapter(ChatOnce),
    ("openai-chat", True): TypeAdapter(ChatStream),
    ("openai-responses", False): TypeAdapter(ResponsesOnce),
    ("openai-responses", True): TypeAdapter(ResponsesStream),
    ("gemini", False): TypeAdapter(GeminiRequest),
}


def lost_keys(given: Any, kept: Any, path: str = "") -> List[str]:
    """Paths that are in `given` and were passed over by the type."""
    if isinstance(given, dict) and isinstance(kept, dict):
        found = []
        for key, value in given.items():
            if key not in kept:
                found.append(f"{path}.{key}")
            else:
                found += lost_keys(value, kept[key], f"{path}.{key}")
        return found
    if isinstance(given, list):
        kept = list(kept)
        if len(given) != len(kept):
            return [f"{path}: {len(given)} elements became {len(kept)}"]
        return [lost for at, pair in enumerate(zip(given, kept)) for lost in lost_keys(*pair, f"{path}[{at}]")]
    return []


def materialise(value: Any) -> Any:
    """Lazily checked iterables, walked, so that each element is checked."""
    if isinstance(value, dict):
        return {key: materialise(inner) for key, inner in value.items()}
    if isinstance(value, (str, bytes, int, float, bool, type(None))):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [materialise(inner) for inner in value]


def conversation_errors(wire: str, body: Any) -> List[str]:
    """What the types cannot say: roles that alternate, calls that are answered."""
    errors = []
    if wire == "anthropic":
        roles = [message["role"] for message in body["messages"]]
        errors += [f"two {a} messages in a row" for a, b in zip(roles, roles[1:]) if a == b]
        waiting: List[str] = []
        for message in body["messages"]:
            answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
            if sorted(waiting) != sorted(answered):
                errors.append(f"calls {waiting} got results {answered}")
            waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        marks = json.dumps(body).count('"cache_control"')
        if marks > 4:
            errors.append(f"{marks} breakpoints")
    if wire == "gemini":
        roles = [content["role"] for content in body["contents"]]
        errors += [f"two {a} contents in a row" for a, b in zip(roles, roles[1:]) if a == b]
    if wire == "openai-chat":
        waiting = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    errors.append(f"result {message['tool_call_id']} without a call")
                else:
                    waiting.remove(message["tool_call_id"])
            elif waiting:
                errors.append(f"calls {waiting} wait at a {message['role']} message")
            waiting += [call["id"] for call in message.get("tool_calls", [])]
    return errors


def check(wire: str, text: str) -> List[str]:
    body = json.loads(text)
    stream = bool(body.get("stream")) and wire != "gemini"
    try:
        kept = materialise(ADAPTERS[(wire, stream)].validate_python(body))
    except ValidationError as error:
        return [str(error)]
    errors = [lost for lost in lost_keys(body, kept) if lost.rsplit(".", 1)[-1] not in EXTRA[wire]]
    return errors + conversation_errors(wire, body)


def main(folders: List[str]) -> int:
    golden = Path(__file__).resolve().parent.parent / "projection/tests/golden/formats/v1"
    checked = failed = 0
    for folder in [Path(folder) for folder in folders] or [golden]:
        for wire in EXTRA:
            for path in sorted((folder / wire).glob("*.json")):
                checked += 1
                errors = check(wire, path.read_text(encoding="utf-8"))
                failed += bool(errors)
                for error in errors:
                    print(f"{wire}/{path.name}: {error}")
    print(f"{checked} bodies checked, {failed} refused")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
