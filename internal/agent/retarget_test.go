package agent

import (
	"io/fs"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// noDisk stores nothing.
type noDisk struct{}

func (noDisk) Read(string) ([]byte, error) { return nil, fs.ErrNotExist }
func (noDisk) Write(string, []byte) error  { return nil }
func (noDisk) Remove(string) error         { return nil }

type applierAndProber struct {
	Applier
	Prober
}

// A plan that asks for probes comes while the host becomes a node. Each alone means no
// probes; whichever is last, both together mean probes.
func TestProbesWhateverComesLast(t *testing.T) {
	for range 20000 {
		store, err := state.Open(noDisk{})
		if err != nil {
			t.Fatal(err)
		}
		f := &facts{latest: observation{cleanliness: protocol.Cleanliness{Clean: true}}}
		p := &endpointProbing{
			prober: applierAndProber{}, endpoint: &endpointUpkeep{applier: applierAndProber{}, store: store, facts: f}, facts: f,
			reporter: &reporter{wake: signal.New()}, targetChanged: signal.New(),
		}
		var both sync.WaitGroup
		both.Go(func() {
			endpoint := &protocol.Endpoint{Host: "192.0.2.1", Port: 6443, Probe: true}
			if err := store.SetPlan(state.Plan{Desired: protocol.Desired{Endpoint: endpoint}}); err != nil {
				t.Error(err)
			}
			p.retarget()
		})
		both.Go(func() {
			f.update(func(o *observation) { o.cleanliness.Clean = false })
			p.retarget()
		})
		both.Wait()
		if f.current().endpoint.target == (probeTarget{}) {
			t.Fatal("does not probe")
		}
	}
}
