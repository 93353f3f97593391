package connection_test

import (
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The hosts of a fleet that lost its manager at the same time return at different times:
// each tenth of the time in which they return has about a tenth of them.
func TestThreat15_HostsReturnAtDifferentTimes(t *testing.T) {
	t.Parallel()
	const hosts, parts = 1000, 10
	for name, test := range map[string]struct {
		err      error
		from, to time.Duration
	}{
		"unreachable": {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 0, time.Second},
		"busy":        {&client.ProblemError{Problem: protocol.Problem{Status: 503}}, 0, time.Second},
		"busy for a time": {
			&client.ProblemError{Problem: protocol.Problem{Status: 503}, RetryAfter: 30 * time.Second}, 30 * time.Second, time.Minute,
		},
	} {
		var returned [parts]int
		for host := range uint64(hosts) {
			delay := connection.NewDelays(rand.New(rand.NewPCG(1, host)).Float64).AfterError(test.err, 0)
			if delay < test.from || delay >= test.to {
				t.Fatalf("%s: a host returns after %s", name, delay)
			}
			returned[(delay-test.from)*parts/(test.to-test.from)]++
		}
		for part, count := range returned {
			if count < hosts/parts/2 || count > hosts/parts*2 {
				t.Errorf("%s: %d of %d hosts return in part %d of %d", name, count, hosts, part+1, parts)
			}
		}
	}
}
