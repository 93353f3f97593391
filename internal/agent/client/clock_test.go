package client_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
)

// The host's clock may show any time. The server's certificate is valid from an hour
// ago until in an hour.
func TestThreat28_Clocks(t *testing.T) {
	const month = 30 * 24 * time.Hour
	present := time.Now()
	monthAgo := present.Add(-month)
	for name, test := range map[string]struct {
		clock      time.Time
		built      time.Time
		serverTime time.Time
		agreed     time.Time
		// certificate moves the server's certificate in time.
		certificate time.Duration
		connects    bool
		distrusted  bool
	}{
		"right":                                 {clock: present, connects: true},
		"1970, first contact":                   {clock: time.Unix(0, 0), built: present.Add(-time.Minute), connects: true},
		"1970, seen before":                     {clock: time.Unix(0, 0), serverTime: present.Add(-time.Minute), connects: true},
		"1970 and nothing known":                {clock: time.Unix(0, 0)},
		"ten years ahead, seen before":          {clock: present.AddDate(10, 0, 0), serverTime: present.Add(-time.Minute), connects: true, distrusted: true},
		"ten years ahead, first contact":        {clock: present.AddDate(10, 0, 0), built: present.AddDate(0, -1, 0)},
		"jumped back after the server was seen": {clock: present.AddDate(-1, 0, 0), serverTime: present.Add(-time.Minute), connects: true},
		"expired by every clock":                {clock: present, serverTime: present.Add(-time.Minute), certificate: -24 * time.Hour},
		"right, the server was ahead": {
			clock: present, serverTime: present.AddDate(0, 6, 0), agreed: present.AddDate(0, 0, -1), connects: true,
		},
		// The certificate was good a month ago, when it was on these hosts.
		"a month back, seen before": {
			clock: monthAgo, serverTime: present, agreed: present.AddDate(0, 0, -1), certificate: -month,
		},
		"a month back, built since": {
			clock: monthAgo, built: present.AddDate(0, 0, -1), serverTime: present, agreed: present.AddDate(0, -2, 0),
			certificate: -month,
		},
		"without a clock, seen before":           {clock: monthAgo, serverTime: present, certificate: -month},
		"an old build and an old visit: a clock": {clock: present, built: present.AddDate(-2, 0, 0), serverTime: present.AddDate(-1, 0, 0), connects: true},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := present.Add(test.certificate-time.Hour), present.Add(test.certificate+time.Hour)
			s, bundle := server(t, from, to, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
			c := connect(t, func(o *client.Options) {
				o.Servers, o.TrustBundle = []string{s.URL}, bundle
				o.Built, o.ServerTime, o.Now = test.built, test.serverTime, func() time.Time { return test.clock }
				o.Agreed = test.agreed
			})
			_, err := c.Plan(t.Context(), "", "boot")
			if (err == nil) != test.connects || c.ClockDistrusted() != test.distrusted {
				t.Fatalf("distrusts the clock: %t: %v", c.ClockDistrusted(), err)
			}
			if err != nil && !strings.Contains(err.Error(), "clock") {
				t.Errorf("error does not mention the clock: %v", err)
			}
			if test.connects {
				if test.clock.Sub(present).Abs() > 24*time.Hour && !c.Agreed().Equal(test.agreed) {
					t.Errorf("both clocks agreed at %s, want never", c.Agreed())
				}
				if off := c.ServerNow().Sub(present).Abs(); off > time.Hour {
					t.Errorf("believes the server's time to be off by %s", off)
				}
				if off := c.Now().Sub(present).Abs(); off > time.Hour {
					t.Errorf("believes the time to be off by %s", off)
				}
			}
		})
	}
}

// Neither a host clock that is set back nor an answer with an earlier date changes the
// known server time.
func TestThreat28_TimeNeverRunsBackwards(t *testing.T) {
	present := time.Now()
	var behind atomic.Bool
	s, bundle := server(t, present.Add(-time.Hour), present.Add(time.Hour), func(w http.ResponseWriter, _ *http.Request) {
		at := present
		if behind.Load() {
			at = present.AddDate(-1, 0, 0)
		}
		w.Header().Set("Date", at.UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusNoContent)
	})
	clock := &laterClock{}
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle, o.Now = []string{s.URL}, bundle, clock.now })
	for _, jump := range []time.Duration{0, -30 * 24 * time.Hour, -20 * 365 * 24 * time.Hour} {
		clock.pass(jump)
		if _, err := c.Plan(t.Context(), "", ""); err != nil {
			t.Errorf("after a jump by %s: %v", jump, err)
		}
		behind.Store(true)
		if serverTime, _ := c.ServerTime(); serverTime.Before(present.Add(-time.Minute)) {
			t.Errorf("after a jump by %s the server's time is %s", jump, serverTime)
		}
		c.Close() // the next one verifies the certificate again
	}
}

// A manager's clock is ahead and is corrected later. The client accepts certificates
// from before, during and after that time.
func TestThreat28_AServerThatWasAhead(t *testing.T) {
	present := time.Now()
	ahead := present.AddDate(0, 6, 0)
	var shown atomic.Pointer[time.Time]
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", shown.Load().UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusNoContent)
	}
	before, earlier := server(t, present.Add(-time.Hour), present.AddDate(0, 1, 0), answer)
	during, wrong := server(t, present.Add(-time.Hour), ahead.Add(time.Hour), answer)
	since, later := server(t, present.Add(-time.Hour), present.AddDate(0, 1, 0), answer)
	var serverTime, agreed time.Time
	visit := func(url string, at time.Time) *client.Client {
		t.Helper()
		shown.Store(&at)
		c := connect(t, func(o *client.Options) {
			o.Servers, o.TrustBundle, o.ServerTime, o.Agreed = []string{url}, earlier+wrong+later, serverTime, agreed
		})
		if _, err := c.Plan(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
		if received, _ := c.ServerTime(); !received.IsZero() {
			serverTime = received
		}
		agreed = c.Agreed()
		return c
	}
	near := func(what string, at, want time.Time) {
		t.Helper()
		if at.Sub(want).Abs() > time.Minute {
			t.Errorf("%s is %s, want %s", what, at, want)
		}
	}
	visit(before.URL, present)
	near("the server time", serverTime, present)
	visit(before.URL, ahead)
	near("the server time with an expired certificate", serverTime, present)
	visit(during.URL, ahead)
	near("the server time", serverTime, ahead)
	near("the time at which both clocks agreed", agreed, present)
	c := visit(since.URL, present)
	near("the server time", serverTime, present)
	near("the time", c.Now(), present)
	if c.ClockDistrusted() {
		t.Error("distrusts the host's clock")
	}
}

// A man in the middle presents its own certificate, valid at the last server time but
// not by the host's clock. The client must not distrust the host's clock for it.
func TestThreat28_AStrangersCertificateDecidesNothing(t *testing.T) {
	present := time.Now()
	serverTime := present.Add(-30 * 24 * time.Hour)
	answer := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	_, bundle := serving(t, answer)
	stranger, own := server(t, serverTime.Add(-time.Hour), serverTime.Add(time.Hour), answer)
	for name, test := range map[string]struct {
		bundle string
		trusts bool
	}{"a stranger's": {bundle, false}, "the server's": {own, true}} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, func(o *client.Options) {
				o.Servers, o.TrustBundle, o.ServerTime = []string{stranger.URL}, test.bundle, serverTime
			})
			for range 2 {
				if _, err := c.Plan(t.Context(), "", ""); (err == nil) != test.trusts || c.ClockDistrusted() != test.trusts {
					t.Errorf("distrusts the clock: %t: %v", c.ClockDistrusted(), err)
				}
				c.Close()
			}
		})
	}
}
