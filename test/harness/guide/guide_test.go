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

func TestBlocks(t *testing.T) {
	shell, plain := Blocks(text + "\n1. In a list:\n\n   ```sh\n   # not a heading\n   if true; then\n     fifth\n   fi\n   ```\n\n```\noutput\n```\n\n```yaml\na: b\n```\n")
	want := []Block{
		{"Write a file", 8, "cat > file <<EOF\napply nothing\nEOF\n# a comment\nfirst \\\n  --flag | second"},
		{"Go to each host", 21, "third"},
		{"Not a step", 29, "fourth"},
		{"Not a step", 35, "# not a heading\nif true; then\n  fifth\nfi"},
	}
	if !slices.Equal(shell, want) {
		t.Errorf("got %+v, want %+v", shell, want)
	}
	if !slices.Equal(plain, []int{42}) {
		t.Errorf("got %v", plain)
	}
	if got, want := shell[0].Commands(), []string{"cat > file <<EOF", "first    --flag | second"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Block{Script: "$ sixth\nwhat it prints\n$ seventh\n"}).Commands(); !slices.Equal(got, []string{"sixth", "seventh"}) {
		t.Errorf("got %q", got)
	}
	if got := shell[3].First(); got != "# not a heading" {
		t.Errorf("got %q", got)
	}
}
