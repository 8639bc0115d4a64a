//! The promises of the room `recipe`: bad recipes get exact, complete answers; what is written is
//! read again; defaults are what the documentation says; nothing that was written is ignored.

mod keys;
mod mistakes;
mod mixtures;
mod notations;
mod round_trip;
