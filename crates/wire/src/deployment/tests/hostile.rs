//! Templates that try to exhaust the server's time, memory or stack, and merely odd ones.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{read, read_body, resources, workspace};

fn refusal(template: Value) -> String {
    let error = read(template, Value::Null).expect_err("refused");
    assert_eq!(error.status, 400);
    assert!(error.body.error.message.len() < 2_000, "{error}");
    error.to_string()
}

fn output(value: &str) -> Value {
    json!({"it": {"type": "object", "value": value}})
}

/// `v0` has the given value, and each following variable is computed from the one before.
fn chain(first: Value, next: impl Fn(&str) -> String, count: usize) -> Map<String, Value> {
    let mut variables = Map::new();
    variables.insert("v0".to_owned(), first);
    for at in 1..count {
        let before = format!("variables('v{}')", at - 1);
        variables.insert(format!("v{at}"), json!(next(&before)));
    }
    variables
}

#[test]
fn a_value_that_doubles_is_stopped() {
    for (first, next) in [
        (json!("0123456789"), "concat"),
        (json!(["0123456789"]), "concat"),
        (json!("0123456789"), "createArray"),
    ] {
        let variables = chain(first, |before| format!("[{next}({before}, {before})]"), 40);
        let template = json!({"variables": variables, "resources": [], "outputs": output("[variables('v39')]")});
        let error = refusal(template);
        assert!(
            error.contains("bytes in all") || error.contains("bytes, which is the limit"),
            "{error}"
        );
    }
}

#[test]
fn a_long_text_is_not_made_first() {
    let mut variables = Map::new();
    variables.insert("x".to_owned(), json!("x".repeat(2_000)));
    variables.insert("y".to_owned(), json!("[replace(variables('x'), 'x', variables('x'))]"));
    let template =
        json!({"variables": variables, "resources": [], "outputs": output("[variables('y')]")});
    assert!(refusal(template).contains("the result has more than 1048576 bytes"));
}

#[test]
fn what_depends_on_too_much_is_stopped() {
    let deep = chain(json!("x"), |before| format!("[{before}]"), 200);
    let template =
        json!({"variables": deep, "resources": [], "outputs": output("[variables('v199')]")});
    assert!(refusal(template).contains("over more than 128 levels"));
    // They are computed one after the other, so that each is only one level; the value still grows deeper.
    let deep = chain(json!(1), |before| format!("[createArray({before})]"), 200);
    let outputs: Map<String, Value> = (0..200)
        .map(|at| {
            (
                format!("o{at:03}"),
                json!({"type": "array", "value": format!("[variables('v{at}')]")}),
            )
        })
        .collect();
    let template = json!({"variables": deep, "resources": [], "outputs": outputs});
    assert!(refusal(template).contains("a value is nested deeper than 64 levels"));
    let mut value = json!(1);
    for _ in 0..100 {
        value = json!([value]);
    }
    let mut resource = workspace("w");
    resource["properties"] = json!({"x": value});
    assert!(refusal(resources(json!([resource]))).contains("64 levels"));
}

#[test]
fn there_are_limits_on_numbers_of_things() {
    let many: Vec<Value> = (0..201).map(|at| workspace(&format!("w{at}"))).collect();
    assert!(refusal(resources(json!(many))).contains("more than 200 resources"));
    let names: Map<String, Value> = (0..257).map(|at| (format!("v{at}"), json!(1))).collect();
    let template = json!({"variables": names, "resources": []});
    assert!(refusal(template).contains("there are 257 variables; at most 256"));
    let mut template = resources(json!([workspace("w")]));
    for _ in 0..6 {
        let inner = json!({
            "type": "Microsoft.Resources/deployments", "name": "d", "properties": {"template": template},
        });
        template = resources(json!([inner]));
    }
    assert!(refusal(template).contains("over more than 4 levels"));
    let work: Vec<String> = (0..600).map(|_| "range(0, 9)".to_owned()).collect();
    let work = format!("[createArray({})]", work.join(","));
    let outputs: Map<String, Value> =
        (0..200).map(|at| (format!("o{at}"), json!({"type": "array", "value": work}))).collect();
    let error = refusal(json!({"resources": [], "outputs": outputs}));
    assert!(error.contains("bytes in all") || error.contains("200000 steps"), "{error}");
    let long = json!({"resources": [], "outputs": output("[padLeft('', 4096)]")});
    assert!(read(long, Value::Null).is_ok());
    let text = "x".repeat(70_000);
    let long = json!({"resources": [], "outputs": output(&text)});
    assert!(refusal(long).contains("at most 65536 are allowed"));
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("'x'".to_owned()),
        Just("''".to_owned()),
        Just("'{0}é'".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        Just("variables('a')".to_owned()),
        Just("parameters('p')".to_owned()),
        Just("resourceGroup()".to_owned()),
        Just("null()".to_owned()),
        Just("reference('w')".to_owned()),
    ];
    let names = "(concat|format|if|union|take|skip|substring|split|replace|json|int|bool|contains|first|\
                 last|createObject|createArray|resourceId|equals|and|or|not|empty|length|range|add|div|mod|\
                 padLeft|indexOf|utcNow|guid|uniqueString|reference|min|intersection|string|nothing)";
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let call = (names, prop::collection::vec(inner.clone(), 0..4));
        prop_oneof![
            4 => call.prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", "))),
            1 => inner.clone().prop_map(|of| format!("{of}.a")),
            1 => (inner.clone(), inner).prop_map(|(of, index)| format!("{of}[{index}]")),
        ]
    })
}

fn odd() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[\\[\\]()',.a-f0-9 ]{0,16}".prop_map(|text| json!(format!("[{text}]"))),
        expression().prop_map(|text| json!(format!("[{text}]"))),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

const PLACES: &[&str] = &[
    "/properties/mode",
    "/properties/parameters/p",
    "/properties/parameters/p/value",
    "/properties/template/parameters/p",
    "/properties/template/parameters/p/defaultValue",
    "/properties/template/variables/a",
    "/properties/template/resources",
    "/properties/template/resources/0/name",
    "/properties/template/resources/0/type",
    "/properties/template/resources/0/condition",
    "/properties/template/resources/0/dependsOn",
    "/properties/template/resources/0/properties",
    "/properties/template/resources/0/tags",
    "/properties/template/resources/0/resources",
    "/properties/template/resources/1/name",
    "/properties/template/resources/1/properties",
    "/properties/template/resources/2/properties/template",
    "/properties/template/resources/2/properties/parameters",
    "/properties/template/resources/2/properties/expressionEvaluationOptions",
    "/properties/template/outputs",
    "/properties/template/outputs/o/value",
    "/properties/template/outputs/o/condition",
];

fn good() -> Value {
    let nested = json!({
        "type": "Microsoft.Resources/deployments", "name": "n",
        "properties": {"parameters": {}, "template": {"resources": [workspace("v")]}},
    });
    json!({"properties": {
        "mode": "Incremental",
        "parameters": {"p": {"value": "w"}},
        "template": {
            "parameters": {"p": {"type": "string"}},
            "variables": {"a": "b"},
            "resources": [workspace("w"), super::cluster("w/c"), nested],
            "outputs": {"o": {"type": "string", "value": "x"}},
        },
    }})
}

proptest! {
    #[test]
    fn no_odd_template_panics(odds in prop::collection::vec((0..PLACES.len(), odd()), 1..4)) {
        let mut body = good();
        for (index, value) in odds {
            let (parent, key) = PLACES[index].rsplit_once('/').expect("a place");
            match body.pointer_mut(parent) {
                Some(Value::Object(map)) => {
                    map.insert(key.to_owned(), value);
                }
                Some(Value::Array(items)) => {
                    if let Some(item) = key.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                        *item = value;
                    }
                }
                _ => {}
            }
        }
        if let Err(error) = read_body(&body) {
            prop_assert!((400..500).contains(&error.status));
            prop_assert!(!error.body.error.message.is_empty());
            prop_assert!(error.body.error.message.len() < 4_000, "{}", error);
        }
    }

    #[test]
    fn no_expression_panics(text in expression(), noise in "\\PC{0,40}") {
        for text in [text, noise] {
            let mut body = good();
            body["properties"]["template"]["outputs"]["o"]["value"] = json!(format!("[{text}]"));
            if let Err(error) = read_body(&body) {
                prop_assert!((400..500).contains(&error.status));
            }
        }
    }
}
