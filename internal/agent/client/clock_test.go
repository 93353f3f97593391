package client_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
)

// A host's clock may be anywhere. The server's certificate is valid for an
// hour around the present.
func TestThreat28_Clocks(t *testing.T) {
	present := time.Now()
	for name, test := range map[string]struct {
		clock      time.Time
		built      time.Time
		serverTime time.Time
		// certificate moves the server's certificate in time.
		certificate time.Duration
		connects    bool
		distrusted  bool
	}{
		"right":                                  {clock: present, connects: true},
		"1970, first contact":                    {clock: time.Unix(0, 0), built: present.Add(-time.Minute), connects: true},
		"1970, seen before":                      {clock: time.Unix(0, 0), serverTime: present.Add(-time.Minute), connects: true},
		"1970 and nothing known":                 {clock: time.Unix(0, 0)},
		"ten years ahead, seen before":           {clock: present.AddDate(10, 0, 0), serverTime: present.Add(-time.Minute), connects: true, distrusted: true},
		"ten years ahead, first contact":         {clock: present.AddDate(10, 0, 0), built: present.AddDate(0, -1, 0)},
		"jumped back after the server was seen":  {clock: present.AddDate(-1, 0, 0), serverTime: present.Add(-time.Minute), connects: true},
		"expired by every clock":                 {clock: present, serverTime: present.Add(-time.Minute), certificate: -24 * time.Hour},
		"an old build and an old visit: a clock": {clock: present, built: present.AddDate(-2, 0, 0), serverTime: present.AddDate(-1, 0, 0), connects: true},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := present.Add(test.certificate-time.Hour), present.Add(test.certificate+time.Hour)
			s, bundle := server(t, from, to, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
			c := connect(t, func(o *client.Options) {
				o.Servers, o.TrustBundle = []string{s.URL}, bundle
				o.Built, o.ServerTime, o.Now = test.built, test.serverTime, func() time.Time { return test.clock }
			})
			_, err := c.Plan(t.Context(), "", "boot")
			if (err == nil) != test.connects || c.ClockDistrusted() != test.distrusted {
				t.Fatalf("distrusts the clock: %t: %v", c.ClockDistrusted(), err)
			}
			if err != nil && !strings.Contains(err.Error(), "clock") {
				t.Errorf("doesn't mention the clock: %v", err)
			}
			if test.connects {
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

// A clock that is set back while the client runs changes nothing it knows, and
// an answer with an earlier date neither.
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
		if told, _ := c.ServerTime(); told.Before(present.Add(-time.Minute)) {
			t.Errorf("after a jump by %s the server's time is %s", jump, told)
		}
		c.Close() // the next one verifies the certificate again
	}
}
