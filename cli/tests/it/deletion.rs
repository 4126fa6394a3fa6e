//! Deleted is gone: no file of the store holds a byte of it (field case 20).
