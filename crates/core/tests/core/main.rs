//! The core's scenarios and laws, one module for each subject. They are one program, because linking a program for
//! each file takes longer than running them.

mod access;
mod agent_machine;
mod arrays;
mod assets;
mod batches;
mod choosing_hosts;
mod datastores;
mod decision_chart;
mod deployments;
mod environments;
mod eviction;
mod gang;
mod governance;
mod hosts;
mod instances;
mod job_life;
mod laws;
mod leases;
mod names;
mod node_ended;
mod placement;
mod queue_limits;
mod quota_verdicts;
mod read_only;
mod regions;
mod reservations;
mod retention;
mod saved;
mod scenarios;
mod serverless;
mod silent_hosts;
mod state_diagrams;
mod support;
mod uploads;
mod why;
