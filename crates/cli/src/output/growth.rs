//! How much larger than the document a query's values may get. The language is small, yet `[@,@]|[@,@]|…` doubles
//! with every six characters: no memory is enough for what fits into a line.

use jmespath::Variable;
use jmespath::ast::Ast;

/// Times the document. Three tables of twenty columns, made from each other, are below it.
const TIMES_MAX: u64 = 20_000;
/// Of a result: far more than a person or a script reads.
const VALUES_MAX: usize = 1_000_000;
/// Levels of a result. Printers recurse, and readers of JSON give up soon after.
const DEPTH_MAX: usize = 100;
/// How long a separator may be that stands in the document.
const SEPARATOR_CHARS: u64 = 64;

/// At most so many times what an expression is applied to: what it gives, and what it looks at meanwhile.
#[derive(Clone, Copy)]
struct Times {
    given: u64,
    seen: u64,
}

impl Times {
    const ONE: Times = Times { given: 1, seen: 1 };

    fn and(self, other: Times) -> Times {
        let given = self.given.saturating_add(other.given);
        Times { given, seen: self.seen.saturating_add(other.seen) }
    }

    /// The other one is applied to what this one gives.
    fn then(self, other: Times) -> Times {
        let given = self.given.saturating_mul(other.given);
        Times { given, seen: self.seen.saturating_add(self.given.saturating_mul(other.seen)) }
    }

    /// It is looked at once more, and `given` comes of it.
    fn into(self, given: u64) -> Times {
        Times { given, seen: self.seen.saturating_add(self.given).saturating_add(given) }
    }

    fn larger(self, other: Times) -> Times {
        Times { given: self.given.max(other.given), ..self.and(other) }
    }
}

pub fn check(ast: &Ast) -> Result<(), String> {
    let Times { given, seen } = times(ast);
    if given.max(seen) <= TIMES_MAX {
        return Ok(());
    }
    Err(format!(
        "it may make {TIMES_MAX} times what it is applied to, or more; name fewer things at once, or pick \
         what is needed before it is put together"
    ))
}

/// The library's values share their parts; printed, each stands for itself.
pub fn check_result(found: &Variable) -> Result<(), String> {
    fn spend(value: &Variable, depth: usize, left: &mut usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "the result is nested deeper than {DEPTH_MAX} levels; make it flatter"
            ));
        }
        let Some(rest) = left.checked_sub(1) else {
            return Err(format!("the result has more than {VALUES_MAX} values; ask for fewer"));
        };
        *left = rest;
        match value {
            Variable::Array(items) => {
                items.iter().try_for_each(|item| spend(item, depth + 1, left))
            }
            Variable::Object(members) => {
                members.values().try_for_each(|member| spend(member, depth + 1, left))
            }
            _ => Ok(()),
        }
    }
    spend(found, 1, &mut { VALUES_MAX })
}

fn times(ast: &Ast) -> Times {
    match ast {
        Ast::Identity { .. } | Ast::Field { .. } | Ast::Index { .. } | Ast::Slice { .. } => {
            Times::ONE
        }
        Ast::Literal { value, .. } => Times { given: value.to_string().len() as u64, seen: 1 },
        Ast::Subexpr { lhs, rhs, .. } | Ast::Projection { lhs, rhs, .. } => {
            times(lhs).then(times(rhs))
        }
        Ast::And { lhs, rhs, .. } | Ast::Or { lhs, rhs, .. } => times(lhs).larger(times(rhs)),
        Ast::Condition { predicate, then, .. } => {
            let given = times(then).given;
            Times { given, ..times(predicate).and(times(then)) }
        }
        Ast::Comparison { lhs, rhs, .. } => times(lhs).and(times(rhs)).into(1),
        Ast::Not { node, .. } => times(node).into(1),
        Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } => {
            let times = times(node);
            times.into(times.given)
        }
        Ast::MultiList { elements, .. } => elements.iter().map(times).fold(Times::ONE, Times::and),
        Ast::MultiHash { elements, .. } => {
            elements.iter().map(|pair| times(&pair.value)).fold(Times::ONE, Times::and)
        }
        Ast::Expref { ast, .. } => times(ast),
        Ast::Function { name, args, .. } => function(name, args),
    }
}

fn function(name: &str, args: &[Ast]) -> Times {
    let all = args.iter().map(times).fold(Times { given: 0, seen: 1 }, Times::and);
    match (name, args) {
        // An expression is applied to every item of the list.
        ("map", [each, list]) => times(list).then(times(each)),
        ("sort_by" | "max_by" | "min_by", [list, each]) => {
            Times { given: times(list).given, ..times(list).then(times(each)) }
        }
        ("join", [between, list]) => {
            let between = match between {
                Ast::Literal { .. } => times(between).given,
                _ => times(between).given.saturating_mul(SEPARATOR_CHARS),
            };
            all.into(times(list).given.saturating_mul(between))
        }
        // A quote becomes two characters.
        ("to_string", _) => all.into(all.given.saturating_mul(2)),
        (
            "abs" | "avg" | "ceil" | "contains" | "ends_with" | "floor" | "length" | "max" | "min",
            _,
        )
        | ("starts_with" | "sum" | "to_number" | "type", _) => all.into(1),
        _ => all.into(all.given),
    }
}

#[cfg(test)]
mod tests {
    use super::{check, check_result};

    fn is_bounded(query: &str) -> bool {
        check(jmespath::compile(query).expect(query).as_ast()).is_ok()
    }

    #[test]
    fn what_people_ask_for_is_bounded() {
        let columns: Vec<String> = (0..20).map(|n| format!("c{n}: c{n}")).collect();
        let table = format!("[].{{{}}}", columns.join(", "));
        for query in [
            "[?status=='Running'].{Name:name, Tags:tags.team} | sort_by(@, &Name) | [0]",
            "[?contains(name, 'gpu') && properties.nodes > `3`][].tags | [0:5] | join(', ', [].a)",
            "map(&join('-', [a, b]), @) | to_string([@])",
            &format!("{table} | {table} | {table}"),
            &vec!["[?a=='Running' || b=='x']"; 60].join(" | "),
        ] {
            assert!(is_bounded(query), "{query}");
        }
    }

    #[test]
    fn what_doubles_again_and_again_is_not() {
        for (query, join) in [
            ("[@,@]", "|"),
            ("[@,@][]", "|"),
            ("{a:@,b:@}", "|"),
            ("map(&[@,@],@)", "|"),
            ("[].[@,@][]", "|"),
            ("[@,@]==[@,@] && @ || [@,@]", "|"),
            ("to_string([@])", "|"),
            ("[to_array(@), @]", "|"),
            ("merge({a:@}, {b:@})", "|"),
            ("join('0123456789', @)", "|to_array(@)|"),
        ] {
            assert!(is_bounded(query), "{query}");
            assert!(!is_bounded(&[query; 20].join(join)), "{query}");
        }
    }

    #[test]
    fn a_result_is_neither_too_deep_nor_too_large() {
        let result = |query: &str| {
            let found = jmespath::compile(query).expect(query).search(1).expect(query);
            check_result(&found)
        };
        let nested = |levels: usize| format!("{}@{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(result(&nested(99)), Ok(()));
        assert!(result(&nested(100)).is_err_and(|why| why.contains("deeper than 100 levels")));
        assert_eq!(result(&["[@,@]"; 18].join("|")), Ok(()));
        assert!(result(&["[@,@]"; 20].join("|")).is_err_and(|why| why.contains("1000000 values")));
    }
}
