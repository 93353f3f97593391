package measure_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// An API server that ends its watches makes the meter miss nothing.
func TestMeterGoesOnWhereAWatchEnded(t *testing.T) {
	t.Parallel()
	const last = 4
	all := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if !query.Has("watch") {
			_, _ = fmt.Fprint(w, `{"kind":"List","metadata":{"resourceVersion":"1"}}`)
			return
		}
		var version int
		if _, err := fmt.Sscan(query.Get("resourceVersion"), &version); err != nil {
			t.Error(err)
		}
		if version == last {
			close(all)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		// Each watch has one version.
		_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"Thing","metadata":{"name":"a","resourceVersion":"%d"}}}`, version+1)
	}))
	t.Cleanup(api.Close)
	m, err := measure.NewMeter(t.Context(), &rest.Config{Host: api.URL}, "/things")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Error("the meter has given up")
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	if m.Objects("Thing") != 1 || m.Versions("Thing") != last-1 {
		t.Errorf("%d objects, %d versions", m.Objects("Thing"), m.Versions("Thing"))
	}
}
