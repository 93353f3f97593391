package apply_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
)

// sorted returns the lines of a text in order.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Passwords of chpasswd reach users that exist and users of the document. Undo restores the
// former and the day of their last change.
func TestPasswords(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.read("/etc/shadow")
	m.succeeds(header + `
users: [{name: new, lock_passwd: false}]
chpasswd:
  users:
  - {name: old, type: text, password: a b}
  - {name: new, password: $6$c$d}
  list: |
    root:$6$e$f
`)
	if got, want := m.read("/etc/shadow"), "old:a b:0\nnew:$6$c$d:0\nroot:$6$e$f:0\n"; sorted(got) != sorted(want) {
		t.Errorf("got the passwords %q, want %q", got, want)
	}
	for _, args := range m.commands {
		if strings.Contains(strings.Join(args, " "), "a b") {
			t.Errorf("all users can read the password in %q", args)
		}
	}
	for range 2 {
		if err := apply.Undo(t.Context(), m.manifest(), m.options()); err != nil {
			t.Fatal(err)
		}
		if got := m.read("/etc/shadow"); sorted(got) != sorted(before) {
			t.Errorf("got the passwords %q after Undo, want %q", got, before)
		}
	}
}

func TestPasswordsThatDoNotExpire(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.succeeds(header + "chpasswd: {expire: false, list: ['old:new password']}\n")
	if want := [][]string{{"chpasswd"}}; !reflect.DeepEqual(m.commands, want) {
		t.Errorf("got %q, want %q", m.commands, want)
	}
}

func TestPasswordOfAMissingUser(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if f := m.fails(header + "write_files: [{path: /a}]\nchpasswd: {list: ['nobody-here:x']}\n"); !strings.Contains(f.Reason, `the user "nobody-here" of chpasswd does not exist`) {
		t.Errorf("got %v", f)
	}
}

// Keys at the top level permit root to log in, if the document enables root.
func TestKeysAtTheTopLevel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		document string
		keys     string
		warns    string
	}{
		"root enabled":  {"disable_root: false\nssh_authorized_keys: [ssh-ed25519 AAAA me, nonsense]\n", "ssh-ed25519 AAAA me\n", "number 2 is not an SSH public key"},
		"root disabled": {"ssh_authorized_keys: [ssh-ed25519 AAAA me]\n", "", "set disable_root to false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := filepath.Join("/root", ".ssh", "authorized_keys")
			m.file(file, "")
			_, warnings, err := parser.Parse([]byte(header+c.document), "", nil)
			if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Text, c.warns) {
				t.Errorf("got %v and the warnings %q, want %q", err, warnings, c.warns)
			}
			m.succeeds(header + c.document)
			if got := m.read(file); got != c.keys {
				t.Errorf("got the keys %q, want %q", got, c.keys)
			}
		})
	}
}
