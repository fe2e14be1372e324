//! The result of each function.

use serde_json::{Value, json};

use super::read;

fn value(expression: &str) -> Result<Value, String> {
    let template = json!({
        "variables": {"list": [1, 2, 3], "thing": {"Key": "value", "deep": {"a": 1}}},
        "resources": [],
        "outputs": {"it": {"type": "object", "value": format!("[{expression}]")}},
    });
    let plan = read(template, Value::Null).map_err(|error| error.to_string())?;
    let outputs: Value = serde_json::from_str(plan.outputs.expect("one").as_str()).expect("JSON");
    Ok(outputs["it"]["value"].clone())
}

#[test]
fn functions_return_what_azure_documents() {
    let cases = [
        ("concat('a', 1, true())", json!("a1True")),
        ("concat(variables('list'), createArray('x'))", json!([1, 2, 3, "x"])),
        ("format('{0}-{1}-{0} {{}}', 'a', 2)", json!("a-2-a {}")),
        ("if(true(), 1, div(1, 0))", json!(1)),
        ("and(true(), not(false()), or(false(), equals(1, 1)))", json!(true)),
        ("or(true(), bool(div(1, 0)))", json!(true)),
        (
            "createArray(empty(''), empty(createArray()), empty(null()), empty('x'))",
            json!([true, true, true, false]),
        ),
        ("coalesce(null(), json('null'), 'x')", json!("x")),
        ("concat(toLower('ABC'), toUpper('x'))", json!("abcX")),
        (
            "union(createObject('a', createObject('b', 1)), createObject('a', createObject('c', 2)))",
            json!({"a": {"b": 1, "c": 2}}),
        ),
        ("union(variables('list'), createArray(3, 4))", json!([1, 2, 3, 4])),
        ("intersection(variables('list'), createArray(3, 4, 1))", json!([1, 3])),
        ("json('{\"a\": [1]}').a[0]", json!(1)),
        ("string(createObject('a', 1))", json!("{\"a\":1}")),
        ("add(int('4'), mul(sub(5, 2), mod(7, 4)))", json!(13)),
        ("bool('TRUE')", json!(true)),
        (
            "createArray(length('äb'), length(variables('list')), length(variables('thing')))",
            json!([2, 3, 2]),
        ),
        ("contains(variables('thing'), 'KEY')", json!(true)),
        (
            "createArray(contains('abc', 'bc'), contains(variables('list'), 4))",
            json!([true, false]),
        ),
        ("split('a,b;c', createArray(',', ';'))", json!(["a", "b", "c"])),
        ("join(createArray('a', 'b'), '-')", json!("a-b")),
        ("replace('aXbX', 'X', '--')", json!("a--b--")),
        ("concat(substring('abcdef', 2, 2), substring('abc', 3))", json!("cd")),
        ("concat(first('äb'), last('abc'), string(first(variables('list'))))", json!("äc1")),
        ("concat(take('abc', 2), skip('abc', 9), take('x', -1))", json!("ab")),
        ("createArray(skip(variables('list'), 2), take(variables('list'), 1))", json!([[3], [1]])),
        (
            "createArray(indexOf('aBc', 'C'), lastIndexOf('aba', 'A'), indexOf('a', 'x'))",
            json!([2, 2, -1]),
        ),
        ("concat(padLeft('7', 3, '0'), trim('  x '))", json!("007x")),
        ("createArray(startsWith('Abc', 'aB'), endsWith('abc', 'BC'))", json!([true, true])),
        (
            "createArray(min(3, 1, 2), max(variables('list')), less('a', 'b'), greaterOrEquals(2, 2))",
            json!([1, 3, true, true]),
        ),
        ("range(2, 3)", json!([2, 3, 4])),
        ("variables('THING').key", json!("value")),
        ("variables('thing')['deep'].a", json!(1)),
        (
            "resourceId('A/b/c', 'x', 'y')",
            json!("/subscriptions/s/resourceGroups/g/providers/A/b/x/c/y"),
        ),
        (
            "resourceId('S', 'G', 'A/b', 'x')",
            json!("/subscriptions/S/resourceGroups/G/providers/A/b/x"),
        ),
        ("subscriptionResourceId('A/b', 'x')", json!("/subscriptions/s/providers/A/b/x")),
        (
            "extensionResourceId(resourceGroup().id, 'A/b', 'x')",
            json!("/subscriptions/s/resourceGroups/g/providers/A/b/x"),
        ),
        ("tenantResourceId('A/b', 'x')", json!("/providers/A/b/x")),
        (
            "concat(subscription().tenantId, subscription().subscriptionId, resourceGroup().tags.team)",
            json!("tsblue"),
        ),
        ("deployment().name", json!("d")),
        ("utcNow('yyyy-MM-dd')", json!("2026-11-15")),
        ("utcNow()", json!("20261115T195212Z")),
        ("length(uniqueString('a', 'b'))", json!(13)),
        ("equals(uniqueString('a', 'b'), uniqueString('a', 'b'))", json!(true)),
        ("equals(uniqueString('a', 'b'), uniqueString('ab'))", json!(false)),
        ("equals(guid('a'), guid('a'))", json!(true)),
        ("equals(newGuid(), newGuid())", json!(false)),
        ("length(newGuid())", json!(36)),
    ];
    for (expression, wanted) in cases {
        assert_eq!(value(expression), Ok(wanted), "{expression}");
    }
}

#[test]
fn wrong_arguments_are_reported() {
    let cases = [
        ("div(1, 0)", "div(): the result does not fit in a 64-bit number"),
        ("add(9223372036854775807, 1)", "add(): the result does not fit in a 64-bit number"),
        ("concat()", "concat() has 0 arguments; give at least 1"),
        ("if(true(), 1)", "if() has 2 arguments; give 3"),
        ("toLower(1)", "tolower(): an argument is a number; give a string"),
        ("substring('abc', 4)", "the string has 3 characters"),
        ("format('{9}', 'a')", "there is no argument for {9}"),
        ("format('{x}')", "write a literal brace twice"),
        ("format('{18446744073709551615}')", "there is no argument for"),
        ("range(0, 99999)", "the count is 99999; give 0 to 10000"),
        ("range(9223372036854775807, 2)", "the count is 2"),
        ("padLeft('a', 99999)", "give at most 4096"),
        ("split('a', '')", "the delimiter is empty"),
        ("replace('a', '', 'b')", "the text to replace is empty"),
        ("json('{')", "the string is not JSON: line 1"),
        ("createObject('a')", "the number of arguments is odd"),
        ("variables('list')[3]", "there is no item 3 in an array of 3"),
        ("variables('list').a", "there is no 'a' in an array"),
        ("resourceId('x', 'y')", "no argument is a type"),
        ("resourceId('A/b/c', 'x')", "needs 2 names, but has 1"),
        ("utcNow('EEE')", "the format has 'E'"),
        ("min(createArray())", "the array is empty"),
    ];
    for (expression, words) in cases {
        let error = value(expression).expect_err(expression);
        assert!(error.contains("outputs.it: ") && error.contains(words), "{expression}: {error}");
    }
}
