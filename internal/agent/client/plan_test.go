package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
)

// polls records the revisions that polls knew, and answers each poll at once.
type polls struct {
	mu    sync.Mutex
	after []string
}

func (p *polls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = append(p.after, r.URL.Query().Get("after"))
	w.WriteHeader(http.StatusNoContent)
}

// A revision counts on the connection that it came over only: behind another one may be a
// manager that was restored from a backup, or the manager of another cluster.
func TestRevisionIsTiedToItsConnection(t *testing.T) {
	for name, replace := range map[string]func(c *client.Client, current *httptest.Server){
		"a new client":              nil,
		"the connection is renewed": func(c *client.Client, _ *httptest.Server) { c.Reconnect() },
		"the connection is cut":     func(_ *client.Client, current *httptest.Server) { current.CloseClientConnections() },
		"another server answers":    func(_ *client.Client, current *httptest.Server) { current.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var before, after polls
			first, bundle1 := serving(t, before.ServeHTTP)
			second, bundle2 := serving(t, after.ServeHTTP)
			c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{first.URL, second.URL}, bundle1+bundle2 })
			if replace != nil {
				for _, revision := range []string{"", "r1"} {
					if _, err := c.Plan(t.Context(), revision, "boot"); err != nil {
						t.Fatal(err)
					}
				}
				replace(c, first)
			}
			// The loss of a connection may also be noticed by the poll that fails. What counts
			// is that no poll with a revision is answered over another connection.
			_, err := c.Plan(t.Context(), "r1", "boot")
			for err != nil && !errors.Is(err, client.ErrConnectionReplaced) {
				_, err = c.Plan(t.Context(), "r1", "boot")
			}
			if err == nil {
				t.Fatal("a poll with a revision was answered over another connection")
			}
			if _, err := c.Plan(t.Context(), "", "boot"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Plan(t.Context(), "r2", "boot"); err != nil {
				t.Errorf("the new connection does not count as known: %v", err)
			}
			if known := slices.Concat(before.after, after.after); known[len(known)-1] != "r2" {
				t.Errorf("polls knew %q", known)
			}
		})
	}
}
