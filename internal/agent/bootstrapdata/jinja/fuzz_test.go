package jinja_test

import (
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/jinja"
)

// No template makes Render panic or exceed its limit of output.
func FuzzRender(f *testing.F) {
	for _, text := range []string{
		"{{ a.b['c'] | default('x') | upper }}", "{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}",
		"{% if a is defined and not b %}x{% elif 1 < 2 %}y{% else %}z{% endif %}", "{% set x = [1, 2.5, 'a'] %}{{ x[-1] ~ x|join(',') }}",
		"{# c #}{% raw %}{{ }}{% endraw %}", "{{ 'a' * 3 if n else none }}", "{{ {'k': 1}.items() }}", "{{ 2 ** 64 // 3 % 7 }}",
	} {
		f.Add(text)
	}
	vars := map[string]any{"a": map[string]any{"b": map[string]any{"c": "d"}}, "l": []any{"x", int64(1), 2.5, nil, true}, "n": int64(3)}
	f.Fuzz(func(t *testing.T, text string) {
		out, _, err := jinja.Render(text, vars)
		if err == nil && len(out) > 32<<20 {
			t.Errorf("got %d bytes of %d", len(out), len(text))
		}
	})
}
