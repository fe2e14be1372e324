//! The store on real files, one module for each subject.

mod full;
mod kill;
mod sqlite;
mod storage;
