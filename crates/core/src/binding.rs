//! Replaces `${{inputs.x}}` and `${{outputs.y}}` in commands and variables, and drops what `$[[ … ]]` encloses if it
//! refers to an optional input without a value.

/// What an expression names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    Input(&'a str),
    Output(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("'${{{{' at byte {at} has no matching '}}}}'")]
    Open { at: usize },
    #[error("'$[[' at byte {at} has no matching ']]'")]
    OpenOptional { at: usize },
    #[error("'${{{{{text}}}}}' is neither inputs.NAME nor outputs.NAME")]
    Unknown { text: String },
    #[error("'${{{{{text}}}}}' is not among the job's {what}")]
    Missing { text: String, what: &'static str },
}

/// The text with every expression replaced. What `$[[ … ]]` encloses is dropped if it refers to an input without a
/// value.
pub fn bind<'v>(
    text: &str,
    value: &dyn Fn(Name<'_>) -> Option<&'v str>,
) -> Result<String, BindError> {
    let mut bound = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("$[[") {
        bound.push_str(&bind_plain(&rest[..start], value)?);
        let inside = &rest[start + 3..];
        let end = inside
            .find("]]")
            .ok_or(BindError::OpenOptional { at: text.len() - rest.len() + start })?;
        match bind_plain(&inside[..end], value) {
            Ok(part) => bound.push_str(&part),
            Err(BindError::Missing { .. }) => {}
            Err(other) => return Err(other),
        }
        rest = &inside[end + 2..];
    }
    bound.push_str(&bind_plain(rest, value)?);
    Ok(bound)
}

fn bind_plain<'v>(
    text: &str,
    value: &dyn Fn(Name<'_>) -> Option<&'v str>,
) -> Result<String, BindError> {
    let mut bound = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${{") {
        bound.push_str(&rest[..start]);
        let inside = &rest[start + 3..];
        let end =
            inside.find("}}").ok_or(BindError::Open { at: text.len() - rest.len() + start })?;
        bound.push_str(lookup(inside[..end].trim(), value)?);
        rest = &inside[end + 2..];
    }
    bound.push_str(rest);
    Ok(bound)
}

fn lookup<'v>(
    text: &str,
    value: &dyn Fn(Name<'_>) -> Option<&'v str>,
) -> Result<&'v str, BindError> {
    let shown = || text.chars().take(80).collect::<String>();
    let (name, what) = match text.split_once('.') {
        Some(("inputs", name)) if !name.is_empty() => (Name::Input(name), "inputs"),
        Some(("outputs", name)) if !name.is_empty() => (Name::Output(name), "outputs"),
        _ => return Err(BindError::Unknown { text: shown() }),
    };
    value(name).ok_or_else(|| BindError::Missing { text: shown(), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<String, BindError> {
        bind(text, &|name| match name {
            Name::Input("lr") => Some("0.1"),
            Name::Input("data") => Some("/inputs/data"),
            Name::Output("model") => Some("/job/out"),
            Name::Input(_) | Name::Output(_) => None,
        })
    }

    #[test]
    fn expressions_are_replaced() {
        for (text, bound) in [
            ("true", "true"),
            ("a ${{inputs.lr}} b", "a 0.1 b"),
            ("${{ inputs.data }}/x ${{outputs.model}}", "/inputs/data/x /job/out"),
            ("x $[[--lr ${{inputs.lr}}]] y", "x --lr 0.1 y"),
            ("x $[[--no ${{inputs.no}}]] y", "x  y"),
            ("$HOME ${HOME} $((1+1)) {{x}} [[ -f y ]]", "$HOME ${HOME} $((1+1)) {{x}} [[ -f y ]]"),
            ("ä${{inputs.lr}}ö", "ä0.1ö"),
        ] {
            assert_eq!(check(text).as_deref(), Ok(bound), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_said() {
        let missing = |text: &str, what| BindError::Missing { text: text.into(), what };
        for (text, why) in [
            ("${{inputs.no}}", missing("inputs.no", "inputs")),
            ("${{outputs.lr}}", missing("outputs.lr", "outputs")),
            ("${{inputs.}}", BindError::Unknown { text: "inputs.".into() }),
            ("${{search_space.x}}", BindError::Unknown { text: "search_space.x".into() }),
            ("ab ${{inputs.lr", BindError::Open { at: 3 }),
            ("ab $[[ ${{inputs.lr}}", BindError::OpenOptional { at: 3 }),
            ("$[[ ${{nothing}} ]]", BindError::Unknown { text: "nothing".into() }),
        ] {
            assert_eq!(check(text), Err(why), "{text}");
        }
        assert_eq!(
            check("${{inputs.no}}").unwrap_err().to_string(),
            "'${{inputs.no}}' is not among the job's inputs"
        );
    }
}
