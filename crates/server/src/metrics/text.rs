//! Prometheus' text format.

use std::fmt::{Display, Write as _};

#[derive(Default)]
pub struct Text {
    page: String,
}

impl Text {
    /// Begins a family; its samples must follow immediately.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.page.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.page.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.page, "{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.page.push('}');
        }
        let _ = writeln!(self.page, " {value}");
    }

    pub fn into_page(self) -> String {
        self.page
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out() {
        let mut text = Text::default();
        text.family("m_total", "counter", "Words.");
        text.sample("m_total", &[("a", "x\"} 1\n\\"), ("b", "")], 2.5);
        text.sample("m_total", &[], 3);
        assert_eq!(
            text.into_page(),
            "# HELP m_total Words.\n# TYPE m_total counter\n\
             m_total{a=\"x\\\"} 1\\n\\\\\",b=\"\"} 2.5\nm_total 3\n"
        );
    }
}
