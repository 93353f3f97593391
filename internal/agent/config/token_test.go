package config_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
)

func TestThreat27_ForgetToken(t *testing.T) {
	root := bundle(t)
	const servers = "# where managers are\nservers: [https://10.0.0.1:30443] # one\n"
	for name, test := range map[string]struct{ before, after string }{
		"plain":         {servers + "token: hush-hush\n# roots\n" + root, servers + "# roots\n" + root},
		"quoted":        {servers + root + "token: \"hush-hush\" # soon gone\n", servers + root},
		"no line's end": {servers + root + "token: hush-hush", servers + root},
		"block":         {servers + "token: |\n  hush-hush\n\n" + root, servers + "\n" + root},
		"folded":        {servers + "token: >-\n  hush-hush\n" + root, servers + root},
		"next line":     {servers + "token:\n  hush-hush\n" + root, servers + root},
		"none":          {servers + root, servers + root},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := config.ForgetToken(path); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || string(data) != test.after {
				t.Errorf("left %q: %v", data, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v: %v", info.Mode(), err)
			}
			if c, err := config.Load(path); err != nil || c.Token != "" {
				t.Errorf("loads %v: %v", c, err)
			}
		})
	}
}

func TestForgetTokenLeavesAloneWhatItCannotRewrite(t *testing.T) {
	root := bundle(t)
	dir := t.TempDir()
	flow := filepath.Join(dir, "flow.yaml")
	text := "{servers: [https://a], token: hush-hush, trustBundle: " + quoted(root) + "}\n"
	if err := os.WriteFile(flow, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	target := filepath.Join(dir, "target.yaml")
	if err := errors.Join(os.WriteFile(target, []byte("servers: [https://a]\ntoken: hush-hush\n"+root), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{flow, link} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := config.ForgetToken(path); !errors.Is(err, config.ErrByHand) || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%s: %v", path, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s was changed: %v", path, err)
		}
	}
}

// quoted is the bundle of a block scalar as a quoted one.
func quoted(block string) string {
	lines := strings.Split(strings.TrimPrefix(block, "trustBundle: |\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
