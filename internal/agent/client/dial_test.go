package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestConnectsByAnotherDialer(t *testing.T) {
	s, bundle := serving(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	dialled := ""
	c := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://192.0.2.1:1"}, bundle
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = network + " " + address
			return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
		}
	})
	_ = c.Report(t.Context(), protocol.Report{}) // fails: the certificate is for another address
	if dialled != "tcp 192.0.2.1:1" {
		t.Errorf("dialled %q", dialled)
	}
}

// A custom dialer has the same connect timeout as the default dialer.
func TestAnotherDialerIsBounded(t *testing.T) {
	_, bundle := serving(t, nil)
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, func(o *client.Options) {
			o.Servers, o.TrustBundle = []string{"https://192.0.2.1:1"}, bundle
			o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
			}
		})
		began := time.Now()
		err := c.Report(t.Context(), protocol.Report{})
		if took := time.Since(began); !client.Unreachable(err) || !errors.Is(err, context.DeadlineExceeded) || took != 4*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
