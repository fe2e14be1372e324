//! Checks that the services of a job have valid names and distinct ports.

use std::collections::BTreeMap;

use super::job_data::below;
use super::shorten;
use crate::input::Refused;
use crate::limits;
use crate::model::{JobSpec, LOG_DIR, ServiceKind};
use crate::refusal::JobField;

pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    if spec.services.len() > limits::SERVICES_MAX {
        return Err(Refused::invalid(
            JobField::Services,
            format!(
                "there are {} services; at most {} are allowed",
                spec.services.len(),
                limits::SERVICES_MAX
            ),
        ));
    }
    let mut ports = BTreeMap::new();
    for (name, service) in &spec.services {
        check_name(name)?;
        check_properties(name, &service.properties)?;
        let target = || below(JobField::Services, &format!("{name}.port"));
        let Some(port) = service.known_port() else {
            if service.kind == ServiceKind::Custom {
                return Err(Refused::invalid(
                    target(),
                    format!(
                        "the service '{name}' has no port; give the one that the command listens on"
                    ),
                ));
            }
            continue;
        };
        if port < limits::SERVICE_PORT_MIN {
            return Err(Refused::invalid(
                target(),
                format!(
                    "the service '{name}' has port {port}; give {} to 65535, as jobs may not use lower ports",
                    limits::SERVICE_PORT_MIN
                ),
            ));
        }
        if let Some(other) = ports.insert(port, name) {
            return Err(Refused::invalid(
                target(),
                format!(
                    "the services '{other}' and '{name}' both have port {port}; give each its own"
                ),
            ));
        }
    }
    Ok(())
}

/// The name is part of an address and of a file name.
fn check_name(name: &str) -> Result<(), Refused> {
    let fits = (1..=limits::SERVICE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match fits {
        true => Ok(()),
        false => Err(Refused::invalid(
            JobField::Services,
            format!(
                "{:?} cannot be the name of a service; use up to {} letters, digits, '_' and '-'",
                shorten(name),
                limits::SERVICE_NAME_BYTES_MAX
            ),
        )),
    }
}

fn check_properties(name: &str, properties: &BTreeMap<String, String>) -> Result<(), Refused> {
    let entry = format!("{name}.properties");
    let bytes: usize = properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > limits::SERVICE_PROPERTIES_BYTES_MAX {
        return Err(Refused::invalid(
            below(JobField::Services, &entry),
            format!(
                "the properties of the service '{name}' have {bytes} bytes; at most {} are allowed",
                limits::SERVICE_PROPERTIES_BYTES_MAX
            ),
        ));
    }
    match properties.get(LOG_DIR).filter(|folder| folder.contains(['\0', '\n'])) {
        None => Ok(()),
        Some(folder) => Err(Refused::invalid(
            below(JobField::Services, &format!("{entry}.{LOG_DIR}")),
            format!("{:?} cannot be a folder; write it on one line", shorten(folder)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobService;

    fn refused(services: &[(&str, ServiceKind, Option<u16>)]) -> Option<String> {
        let services = services.iter().map(|(name, kind, port)| {
            let properties = BTreeMap::new();
            let service = JobService { kind: *kind, port: *port, on_all_nodes: false, properties };
            ((*name).to_owned(), service)
        });
        let spec = JobSpec { services: services.collect(), ..JobSpec::new("cpu", "true") };
        check(&spec).err().map(|refused| refused.to_string())
    }

    #[test]
    fn services_have_names_and_ports_of_their_own() {
        use ServiceKind::{Custom, JupyterLab, RayDashboard, Ssh, TensorBoard, VsCode};
        assert_eq!(refused(&[]), None);
        let good = [
            ("a-1", JupyterLab, None),
            ("b_2", TensorBoard, Some(6006)),
            ("c", Custom, Some(65_535)),
            ("d", VsCode, None),
            ("e", RayDashboard, None),
            // Muster provides no SSH, so its port does not matter.
            ("f", Ssh, Some(22)),
        ];
        assert_eq!(refused(&good), None);
        let long = "n".repeat(65);
        for (services, words) in [
            (vec![("", Custom, Some(2_000))], "cannot be the name"),
            (vec![("a/b", Custom, Some(2_000))], "cannot be the name"),
            (vec![(long.as_str(), Custom, Some(2_000))], "up to 64 letters"),
            (vec![("a", Custom, None)], "has no port"),
            (vec![("a", Custom, Some(1_023))], "give 1024 to 65535"),
            (vec![("a", Custom, Some(2_000)), ("b", JupyterLab, Some(2_000))], "both have port"),
            (vec![("a", Custom, Some(8_265)), ("b", RayDashboard, None)], "both have port 8265"),
        ] {
            let said = refused(&services).expect("refused");
            assert!(said.contains(words), "{said}");
        }
        let names: Vec<String> = (0..=limits::SERVICES_MAX).map(|at| format!("n{at}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), JupyterLab, None)).collect();
        assert!(refused(&many).expect("refused").contains("at most 16"));
    }

    #[test]
    fn properties_are_bounded() {
        for (value, words) in [("x".repeat(5_000), "5006 bytes"), ("a\nb".into(), "on one line")] {
            let properties = BTreeMap::from([(LOG_DIR.to_owned(), value)]);
            let kind = ServiceKind::TensorBoard;
            let service = JobService { kind, port: None, on_all_nodes: false, properties };
            let services = BTreeMap::from([("tb".to_owned(), service)]);
            let spec = JobSpec { services, ..JobSpec::new("cpu", "true") };
            let said = check(&spec).expect_err("refused").to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
