package probe

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A probe a second: "+" is an answer, "-" a failure, "?" one that could not be
// made. The verdict after each is its state, with the second since when, or "."
// before it is settled.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct{ outcomes, want string }{
		{"+", "+0"},
		{"-", "."},
		{"--", ".-0"},
		{"-+", ".+1"},
		{"+-", "+0+0"},
		{"+--", "+0+0-1"},
		{"+-+-+", "+0+0+0+0+0"},
		{"+---+", "+0+0-1-1+4"},
		{"+-+--", "+0+0+0+0-3"},
		{"--+", ".-0+2"},
		{"?", "."},
		{"??", ".?0"},
		{"-?", ".?0"},
		{"?--", ".?0-1"},
		{"+?", "+0+0"},
		{"+??", "+0+0?1"},
		{"--?", ".-0-0"},
		{"--??+", ".-0-0?2+4"},
	} {
		t.Run(test.outcomes, func(t *testing.T) {
			var tracked track
			var got string
			for second, mark := range test.outcomes {
				o := map[rune]outcome{'+': {state: Answers}, '-': fails(errors.New("refused")), '?': {Unknown, "no CA"}}[mark]
				before := tracked.verdict
				changed := tracked.add(o, time.Unix(int64(second), 0))
				if changed != (before != tracked.verdict) {
					t.Errorf("after %d probes: changed is %t", second+1, changed)
				}
				got += describe(t, tracked.verdict)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func describe(t *testing.T, v Verdict) string {
	t.Helper()
	if !v.Settled {
		return "."
	}
	want := map[State]string{Answers: "", Fails: "refused", Unknown: "no CA"}[v.State]
	if v.Message != want && !(v.State == Unknown && v.Message == "") {
		t.Errorf("%q says %q", v.State, v.Message)
	}
	since := int64(0)
	if !v.Since.IsZero() {
		since = v.Since.Unix()
	}
	return fmt.Sprint(map[State]string{Answers: "+", Fails: "-", Unknown: "?"}[v.State], since)
}

func TestAnswers(t *testing.T) {
	for status, want := range map[int]State{200: Answers, 401: Answers, 403: Answers, 302: Fails, 404: Fails, 429: Fails, 500: Fails, 503: Fails} {
		if got := answered(status).state; got != want {
			t.Errorf("%d: %q", status, got)
		}
	}
}
