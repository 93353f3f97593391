package shell

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), "sh", "-c", "echo one; echo two; echo three >&2")
	if err != nil || out != "one\ntwo" {
		t.Errorf("got %q, %v", out, err)
	}
	out, err = Command{
		Args: []string{"sh", "-c", `cat; echo "$WORD"`}, Env: []string{"WORD=word"}, Stdin: strings.NewReader("in "),
	}.Run(t.Context())
	if err != nil || out != "in word" {
		t.Errorf("got %q, %v", out, err)
	}
	_, err = Run(t.Context(), "sh", "-c", "echo reason >&2; exit 3")
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: reason") {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	if err := p.Step("Working", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no luck")
	if err := p.Step("Failing", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Write([]byte("one\n\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "] ")
		said = append(said, strings.TrimSpace(strings.Split(text, " took")[0]))
	}
	if got, want := strings.Join(said, "|"), "Working|Working:|Failing|one|two"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTail(t *testing.T) {
	for text, want := range map[string]string{"abc": "abc", "abcd": "…bcd"} {
		if got := tail(text, 3); got != want {
			t.Errorf("%s: got %s", text, got)
		}
	}
}
