//! A full disk is said at once, and nothing that was acknowledged is lost (field case 19).
