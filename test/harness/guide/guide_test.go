package guide

import (
	"slices"
	"testing"
)

const text = `# Guide

## Steps

### 1. Write a file

` + "```sh" + `
cat > file <<EOF
apply nothing
EOF
# a comment
first \
  --flag | second
` + "```" + `

**You see** nothing.

### 2. Go to each host

` + "```sh" + `
third
` + "```" + `

## Afterwards

### Not a step

` + "```sh" + `
fourth
` + "```" + `
`

func TestSteps(t *testing.T) {
	steps, err := Steps(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 2 || steps[0].Title != "Write a file" || steps[0].OnEachHost() || !steps[1].OnEachHost() {
		t.Fatalf("got %+v", steps)
	}
	if got, want := steps[0].Commands(), []string{"cat > file <<EOF", "first    --flag | second"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := steps[1].Scripts; !slices.Equal(got, []string{"third"}) {
		t.Errorf("got %q", got)
	}
	if _, err := Steps("# Guide\n"); err == nil {
		t.Error("a guide without steps was accepted")
	}
}
