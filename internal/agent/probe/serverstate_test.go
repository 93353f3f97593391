package probe

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// There is one probe each second: "+" is an answer, "-" a failure, "?" a probe
// that could not be made. The expected states are the result and the second
// since when, or "." as long as the state is not conclusive.
func TestTracker(t *testing.T) {
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
			var tracked tracker
			var got string
			for second, mark := range test.outcomes {
				o := map[rune]outcome{'+': {result: Answers}, '-': failed(errors.New("refused")), '?': {Unknown, "no CA"}}[mark]
				before := tracked.state
				changed := tracked.record(o, time.Unix(int64(second), 0))
				if changed != (before != tracked.state) {
					t.Errorf("after %d probes: changed is %t", second+1, changed)
				}
				got += describe(t, tracked.state)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func describe(t *testing.T, s ServerState) string {
	t.Helper()
	if !s.Conclusive {
		return "."
	}
	want := map[Result]string{Answers: "", Fails: "refused", Unknown: "no CA"}[s.Result]
	if s.Message != want && !(s.Result == Unknown && s.Message == "") {
		t.Errorf("%q with message %q", s.Result, s.Message)
	}
	since := int64(0)
	if !s.Since.IsZero() {
		since = s.Since.Unix()
	}
	return fmt.Sprint(map[Result]string{Answers: "+", Fails: "-", Unknown: "?"}[s.Result], since)
}

func TestAnswers(t *testing.T) {
	for status, want := range map[int]Result{200: Answers, 401: Answers, 403: Answers, 302: Fails, 404: Fails, 429: Fails, 500: Fails, 503: Fails} {
		if got := answered(status).result; got != want {
			t.Errorf("%d: %q", status, got)
		}
	}
}
