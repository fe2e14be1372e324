//! Evaluation of a JMESPath expression that stops when its values become too many.
//!
//! The language is small, yet `[@,@][]|[@,@][]|…` doubles a list with every eight characters. The library has no limit
//! of its own, but it calls functions: every part of an expression whose result can be larger than its input is made
//! the argument of a function that counts the values of that result and fails when too many have been made. The other
//! parts only select from values that have been counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jmespath::ast::Ast;
use jmespath::functions::{Function, JoinFn};
use jmespath::{Context, ErrorReason, JmespathError, Rcvar, Runtime, ToJmespath as _, Variable};
use serde_json::Value;

/// The maximum number of values in a result; far more than a person or a script reads.
const RESULT_VALUES_MAX: usize = 1_000_000;
/// The maximum number of intermediate values: a base number, and a number for each value of the document.
const MADE_VALUES: usize = 20_000;
const MADE_VALUES_EACH: usize = 100;
const MADE_VALUES_MAX: usize = 5_000_000;
/// The maximum depth of a result. Printers recurse, and JSON parsers give up soon after.
const DEPTH_MAX: usize = 100;
/// A string counts as one more value for each of these bytes.
const VALUE_BYTES: usize = 32;
/// The weight of `&expression` if it is not the argument of a function: a copy of the expression.
const EXPRESSION_VALUES: usize = 500;
/// No expression can contain this name, because a name has no space.
const COUNTED: &str = "counted value";

/// Applies the expression to the document. The caller provides a stack that is large enough for `text`.
pub fn search(text: &str, mut ast: Ast, document: &Value) -> Result<Rcvar, JmespathError> {
    let document = document.to_jmespath()?;
    let values = cost(&document, MADE_VALUES_MAX).unwrap_or(MADE_VALUES_MAX);
    let most = (MADE_VALUES + MADE_VALUES_EACH * values).min(MADE_VALUES_MAX);
    let budget = Arc::new(Budget { most, left: AtomicUsize::new(most) });
    let mut runtime = Runtime::new();
    runtime.register_builtin_functions();
    runtime.register_function("join", Box::new(join(budget.clone())));
    runtime.register_function(COUNTED, Box::new(counted(budget)));
    count_results(&mut ast);
    let found = jmespath::interpret(&document, &ast, &mut Context::new(text, &runtime))?;
    // The library's values share their parts; when printed, each part appears as often as it is used.
    let words = match cost(&found, RESULT_VALUES_MAX).map(|_| depth(&found)) {
        Some(..=DEPTH_MAX) => return Ok(found),
        Some(_) => format!("the result is nested deeper than {DEPTH_MAX} levels; make it flatter"),
        None => format!("the result has more than {RESULT_VALUES_MAX} values; select fewer"),
    };
    Err(JmespathError::new(text, 0, ErrorReason::Parse(words)))
}

struct Budget {
    most: usize,
    left: AtomicUsize,
}

impl Budget {
    fn spend(
        &self,
        ctx: &Context<'_>,
        cost: impl FnOnce(usize) -> Option<usize>,
    ) -> Result<(), JmespathError> {
        let before = self.left.load(Ordering::Relaxed);
        let after = cost(before).and_then(|cost| before.checked_sub(cost));
        let after = after.ok_or_else(|| {
            let most = self.most;
            let words = format!(
                "it creates more than {most} values from this document; select what you need before you combine it"
            );
            JmespathError::from_ctx(ctx, ErrorReason::Parse(words))
        })?;
        self.left.store(after, Ordering::Relaxed);
        Ok(())
    }
}

fn counted(budget: Arc<Budget>) -> impl Function {
    move |args: &[Rcvar], ctx: &mut Context<'_>| {
        let value = args[0].clone();
        budget.spend(ctx, |left| cost(&value, left)).map(|()| value)
    }
}

/// The only function whose result can be as large as the product of its arguments, so it is counted beforehand.
fn join(budget: Arc<Budget>) -> impl Function {
    let join = JoinFn::new();
    move |args: &[Rcvar], ctx: &mut Context<'_>| {
        if let [glue, parts] = args
            && let (Some(glue), Some(parts)) = (glue.as_string(), parts.as_array())
        {
            let values = glue.len().saturating_mul(parts.len()) / VALUE_BYTES;
            budget.spend(ctx, |_| Some(values))?;
        }
        join.evaluate(args, ctx)
    }
}

/// The number of values; `None` if there are more than `most`.
fn cost(value: &Variable, most: usize) -> Option<usize> {
    let own = match value {
        Variable::String(text) => 1 + text.len() / VALUE_BYTES,
        Variable::Expref(_) => EXPRESSION_VALUES,
        _ => 1,
    };
    let left = most.checked_sub(own)?;
    let inside = |left: usize, part: &Rcvar| Some(left - cost(part, left)?);
    let left = match value {
        Variable::Array(items) => items.iter().try_fold(left, inside)?,
        Variable::Object(members) => members.values().try_fold(left, inside)?,
        _ => left,
    };
    Some(most - left)
}

fn depth(value: &Variable) -> usize {
    let depth = |part: &Rcvar| depth(part);
    1 + match value {
        Variable::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Variable::Object(members) => members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn count_results(ast: &mut Ast) {
    let is_function = matches!(ast, Ast::Function { .. });
    for part in parts_mut(ast) {
        match part {
            // A function drops it before it returns.
            Ast::Expref { ast, .. } if is_function => count_results(ast),
            part => count_results(part),
        }
    }
    if let Ast::MultiList { offset, .. }
    | Ast::MultiHash { offset, .. }
    | Ast::Literal { offset, .. }
    | Ast::Expref { offset, .. }
    | Ast::Function { offset, .. } = *ast
    {
        let args = vec![std::mem::replace(ast, Ast::Identity { offset })];
        *ast = Ast::Function { offset, name: COUNTED.to_owned(), args };
    }
}

/// The expressions directly inside an expression.
pub fn parts_mut(ast: &mut Ast) -> Vec<&mut Ast> {
    match ast {
        Ast::MultiHash { elements, .. } => elements.iter_mut().map(|it| &mut it.value).collect(),
        Ast::MultiList { elements: parts, .. } | Ast::Function { args: parts, .. } => {
            parts.iter_mut().collect()
        }
        Ast::Comparison { lhs, rhs, .. }
        | Ast::Condition { predicate: lhs, then: rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. } => vec![lhs, rhs],
        Ast::Expref { ast: node, .. }
        | Ast::Flatten { node, .. }
        | Ast::Not { node, .. }
        | Ast::ObjectValues { node, .. } => vec![node],
        Ast::Identity { .. }
        | Ast::Field { .. }
        | Ast::Index { .. }
        | Ast::Literal { .. }
        | Ast::Slice { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(query: &str, document: &Value) -> Result<Rcvar, String> {
        let ast = jmespath::parse(query).expect(query);
        search(query, ast, document).map_err(|why| why.to_string())
    }

    #[test]
    fn what_people_ask_for_is_answered() {
        let columns: Vec<String> = (0..20).map(|n| format!("c{n}: c{n}")).collect();
        let table = format!("[].{{{}}}", columns.join(", "));
        let document = json!(vec![json!({"name": "gpu", "status": "Running", "a": "x"}); 10_000]);
        for query in [
            "[?status=='Running'].{Name:name, Tags:tags.team} | sort_by(@, &Name) | [0]",
            "[?contains(name, 'gpu') && properties.nodes > `3`][].tags | [0:5] | join(', ', [].a)",
            "map(&join('-', [a, name]), @) | to_string([@])",
            &format!("{table} | {table} | {table}"),
            &vec!["[?status=='Running' || a=='x']"; 60].join(" | "),
        ] {
            assert!(asked(query, &document).is_ok(), "{query}");
        }
    }

    #[test]
    fn what_doubles_again_and_again_is_refused() {
        let document = json!(["a", "b", "c"]);
        for (query, join) in [
            ("[@,@]", "|"),
            ("[@,@][]", "|"),
            ("{a:@,b:@}", "|"),
            ("map(&[@,@],@)", "|"),
            ("[].[@,@][]", "|"),
            ("[@,@]!=[@,@] && @ || [@,@]", "|"),
            ("to_string([@])", "|"),
            ("[to_array(@), @]", "|"),
            ("merge({a:@}, {b:@})", "|"),
            ("join(join('', @), [@,@,@,@][])", "|to_array(@)|"),
            ("map(&`[1,1,1,1,1,1,1,1,1,1]`, @)[]", "|"),
            ("[].[&a,&b][]", "|"),
        ] {
            assert!(asked(query, &document).is_ok(), "{query}");
            let why = asked(&[query; 40].join(join), &document).expect_err(query);
            assert!(why.contains("it creates more than 20400 values"), "{why}");
        }
    }

    #[test]
    fn a_result_is_neither_too_deep_nor_too_large() {
        let result = |query: &str| asked(query, &json!(1)).map(drop);
        let nested = |levels: usize| format!("{}@{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(result(&nested(99)), Ok(()));
        assert!(result(&nested(100)).is_err_and(|why| why.contains("deeper than 100 levels")));
        let many = |values: usize| asked("@", &json!(vec![1; values])).map(drop);
        assert_eq!(many(RESULT_VALUES_MAX - 1), Ok(()));
        let why = many(RESULT_VALUES_MAX).expect_err("a million and their list");
        assert!(why.contains("the result has more than 1000000 values"), "{why}");
    }
}
