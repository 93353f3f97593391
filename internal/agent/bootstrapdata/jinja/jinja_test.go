package jinja_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/jinja"
)

func variables() map[string]any {
	return map[string]any{
		"ds": map[string]any{"meta_data": map[string]any{
			"hostname": "edge-7", "local_hostname": "edge-7", "rack": int64(12), "ready": true, "none": nil,
			"disks": []any{"sda", "sdb"}, "labels": map[string]any{"zone": "a", "tier": "x"},
		}},
		"v1": map[string]any{"local_hostname": "edge-7"},
	}
}

// The wanted outputs were recorded from Jinja2 3.1 with the settings of cloud-init.
func TestRender(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"plain":                    {"a\nb\n", "a\nb\n"},
		"attribute":                {"{{ ds.meta_data.hostname }}", "edge-7"},
		"index":                    {"{{ ds['meta_data'][\"hostname\"] }}", "edge-7"},
		"list index":               {"{{ ds.meta_data.disks[1] }}{{ ds.meta_data.disks.0 }}{{ ds.meta_data.disks[-1] }}", "sdbsdasdb"},
		"string index":             {"{{ ds.meta_data.hostname[0] }}", "e"},
		"undefined last":           {"x={{ ds.meta_data.foo }}", "x=CI_MISSING_JINJA_VAR/foo"},
		"undefined first":          {"x={{ foo }}", "x=CI_MISSING_JINJA_VAR/foo"},
		"undefined index":          {"{{ ds.meta_data.disks[9] }}", "CI_MISSING_JINJA_VAR/9"},
		"attribute of a string":    {"{{ ds.meta_data.hostname.foo }}", "CI_MISSING_JINJA_VAR/foo"},
		"undefined filtered":       {"{{ foo|upper }}", "CI_MISSING_JINJA_VAR/FOO"},
		"undefined default":        {"{{ foo|default('d') }} {{ foo|d }}.", "d ."},
		"default of false":         {"{{ ''|default('d', true) }}", "d"},
		"undefined in if":          {"{% if foo %}a{% else %}b{% endif %}", "b"},
		"undefined in for":         {"{% for x in foo %}a{% else %}none{% endfor %}", "none"},
		"is defined":               {"{{ foo is defined }} {{ v1 is not undefined }}", "False True"},
		"comment":                  {"a{# b #}c", "ac"},
		"comment line":             {"a\n{# b\nc #}\nd", "a\nd"},
		"trim blocks":              {"{% if true %}\na\n{% endif %}\nb\n", "a\nb\n"},
		"line break after output":  {"{{ 1 }}\n{{ 2 }}\n", "1\n2\n"},
		"final newline":            {"{% if true %}a{% endif %}\n", "a\n"},
		"minus":                    {"a \n {%- if true -%} \n b {%- endif %}", "ab"},
		"minus in output":          {"a {{- 1 -}} b", "a1b"},
		"plus keeps newline":       {"{% if true +%}\na{% endif %}", "\na"},
		"raw":                      {"{% raw %}${#a[@]} {{ x }} {% if %}{% endraw %}!", "${#a[@]} {{ x }} {% if %}!"},
		"raw trims its end only":   {"{% raw %}\na\n{% endraw %}\nb", "\na\nb"},
		"crlf":                     {"a\r\nb\rc", "a\nb\nc"},
		"types":                    {"{{ 1 }} {{ 1.5 }} {{ 2.0 }} {{ true }} {{ none }} {{ [1,'a'] }} {{ {'a': 1} }}", "1 1.5 2.0 True None [1, 'a'] {'a': 1}"},
		"arithmetic":               {"{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ -7 // 2 }} {{ 3 - 1 - 1 }}", "7 3 3.5 2 -4 1"},
		"concat":                   {"{{ 'a' ~ 1 ~ v1.local_hostname }}{{ 'b' + 'c' }}", "a1edge-7bc"},
		"comparison":               {"{{ 1 < 2 }} {{ 2 <= 1 }} {{ 'a' == 'a' }} {{ 'a' != 'a' }} {{ 'a' in ['a'] }} {{ 'z' not in 'abc' }}", "True False True False True True"},
		"logic":                    {"{{ true and false }} {{ false or 'x' }} {{ not true }} {{ 1 and 2 }}", "False x False 2"},
		"conditional":              {"{{ 'a' if ds.meta_data.rack > 10 else 'b' }}{{ 'z' if false }}", "a"},
		"elif":                     {"{% if false %}a{% elif ds.meta_data.ready %}b{% else %}c{% endif %}", "b"},
		"for":                      {"{% for d in ds.meta_data.disks %}{{ loop.index }}{{ d }}{% if not loop.last %},{% endif %}{% endfor %}", "1sda,2sdb"},
		"for pairs":                {"{% for k, v in ds.meta_data.labels.items() %}{{ k }}={{ v }};{% endfor %}", "tier=x;zone=a;"},
		"for with if":              {"{% for n in range(6) if n is odd %}{{ n }}{% endfor %}", "135"},
		"set":                      {"{% set a = 'x' %}{{ a }}", "x"},
		"set block":                {"{% set a %}x{{ 1 }}{% endset %}{{ a }}", "x1"},
		"set in for has no effect": {"{% set a = 1 %}{% for i in [1,2] %}{% set a = 2 %}{% endfor %}{{ a }}", "1"},
		"do":                       {"{% do ds.meta_data.labels.items() %}x", "x"},
		"filters":                  {"{{ 'Ab'|upper|lower }} {{ ' a '|trim }} {{ ['a','b']|join('-') }} {{ 'aXa'|replace('X','y') }}", "ab a a-b aya"},
		"more filters":             {"{{ [3,1,2]|sort }} {{ [1,1]|unique|list }} {{ 'abc'|reverse }} {{ 'abc'|length }} {{ '7'|int + 1 }} {{ 'x'|int }} {{ [1,2]|first }}{{ [1,2]|last }}", "[1, 2, 3] [1] cba 3 8 0 12"},
		"indent":                   {"{{ 'a\nb'|indent(2) }}", "a\n  b"},
		"tojson":                   {"{{ {'a': [1, 'x', none, true]}|tojson }}", `{"a": [1, "x", null, true]}`},
		"methods":                  {"{{ ds.meta_data.hostname.split('-')[0] }} {{ v1.local_hostname.upper() }} {{ 'ab'.startswith('a') }} {{ ds.meta_data.labels.get('q', 'r') }}", "edge EDGE-7 True r"},
		"braces in a string":       {"{{ '}}' }}", "}}"},
		"dict in output":           {"{{ {'a': {'b': 1}}['a']['b'] }}", "1"},
		"shell text is unchanged":  {"echo ${HOME} $(id) `x` %{y} {a,b}", "echo ${HOME} $(id) `x` %{y} {a,b}"},
		"escapes":                  {`{{ "a\n\t\"b\"" }}`, "a\n\t\"b\""},
		"unicode":                  {"{{ 'ä' }}ö", "äö"},
		"test argument":            {"{{ 4 is divisibleby 2 }} {{ 4 is eq(4) }} {{ 1 is string or 2 is number }}", "True True True"},
		"repr with quotes":         {`{{ ["it's"] }}`, `["it's"]`},
		"line break in the tag":    {"{{ 1 +\n 2 }}", "3"},
		"floats":                   {"{{ 1234567.5 }} {{ 0.00001 }}", "1234567.5 1e-05"},
		"attributes of a number":   {"{{ ds.meta_data.rack.foo }}", "CI_MISSING_JINJA_VAR/foo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := jinja.Render(c.in, variables())
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in     string
		line   int
		reason string
	}{
		"shell array length":         {"a\necho ${#array[@]}\n", 2, "never closed"},
		"go template":                {"a\nb\n{{ .Name }}", 3, `unexpected "."`},
		"attribute of undefined":     {"a\n{{ foo.bar.baz }}", 2, `"foo" is undefined`},
		"attribute of a missing key": {"{{ ds.meta_data.foo.bar }}", 1, `"foo" is undefined`},
		"subtraction":                {"\n{{ ds.meta_data.local-hostname }}", 2, "perhaps you meant"},
		"unknown filter":             {"{% if false %}\n{{ 1|nope }}{% endif %}", 2, `no filter named "nope"`},
		"unknown test":               {"{{ 1 is nope }}", 1, `no test named "nope"`},
		"unknown tag":                {"\n{% include '/etc/shadow' %}", 2, "not supported"},
		"open output":                {"a\n{{ a", 2, "never closed"},
		"open block":                 {"a\n{% if true %}\nb", 2, "never closed"},
		"open raw":                   {"{% raw %}", 1, "endraw"},
		"open string":                {"{{ 'a }}", 1, "never closed"},
		"stray endif":                {"a\n{% endif %}", 2, "unexpected"},
		"end of another block":       {"{% if true %}\n{% endfor %}", 2, "unexpected"},
		"two expressions in a tag":   {"{{ a b }}", 1, `unexpected "b"`},
		"empty output":               {"{{ }}", 1, "expected an expression"},
		"comparison of types":        {"{{ 1 < 'a' }}", 1, "cannot compare"},
		"division by zero":           {"{{ 1 / 0 }}", 1, "division by zero"},
		"loop over a number":         {"{% for x in 1 %}{% endfor %}", 1, "not a list"},
		"too many steps":             {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 1, "steps"},
		"huge range":                 {"{{ range(99999999999) }}", 1, "longer"},
		"huge output":                {"{% set a = 'x' %}" + strings.Repeat("{% set a = a ~ a %}", 40), 1, "larger"},
		"deep nesting":               {"{{ " + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + " }}", 1, "nested"},
		"undefined arithmetic":       {"{{ foo + 1 }}", 1, `"foo" is undefined`},
		"keyword argument":           {"{{ foo|default(value='x') }}", 1, "by position"},
		"method of undefined":        {"{{ foo.upper() }}", 1, "undefined"},
		"unexpected characters":      {"{{ a ? b }}", 1, "unexpected character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := jinja.Render(c.in, variables())
			var at *jinja.Error
			if !errors.As(err, &at) {
				t.Fatalf("got %q and the error %v, want an *Error", out, err)
			}
			if at.Line != c.line || !strings.Contains(at.Reason, c.reason) {
				t.Errorf("got the error %v, want line %d and %q", err, c.line, c.reason)
			}
		})
	}
}

func TestMissingIsReportedOnce(t *testing.T) {
	t.Parallel()
	_, missing, err := jinja.Render("{{ b }}{{ a.b if false else a }}{{ b }}{{ c|default(1) }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(missing, ","); got != "a,b" {
		t.Errorf("got the missing variables %q, want a,b", got)
	}
}
