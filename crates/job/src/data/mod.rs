//! Where transfers go and what writes hold.

pub(crate) mod offsets;
pub(crate) mod random;
pub(crate) mod verify;
pub(crate) mod written;
