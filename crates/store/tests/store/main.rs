//! The store on real files, one module for each subject.

mod full;
mod kill;
mod series;
mod sqlite;
mod storage;
