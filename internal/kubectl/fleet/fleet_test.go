package fleet_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/fleet"
)

// printed is one page as a Printer gets it.
type printed chan []string

func (p printed) Print(hosts []fleet.Host) error {
	var page []string
	for _, h := range hosts {
		page = append(page, h.Name+" "+h.State)
	}
	p <- page
	return nil
}

func (p printed) Close() error { return nil }

func newLister(f *controllertest.Fixture, filter fleet.Filter) *fleet.Lister {
	f.T.Helper()
	c, err := client.NewWithWatch(env.Config, env.ClientOptions())
	f.Expect(err).NotTo(HaveOccurred())
	return &fleet.Lister{Client: c, Clock: f.Clock, Namespace: f.Namespace, Filter: filter, PageSize: 2}
}

// Not more than a page of hosts is in memory.
func TestListByPages(t *testing.T) {
	f := controllertest.New(t, env)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.Host(name)
	}
	pages := make(printed, 10)
	count, err := newLister(f, fleet.Filter{}).List(f.Ctx, pages)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(count).To(Equal(5))
	f.Expect(pages).To(Receive(Equal([]string{"a Available", "b Available"})))
	f.Expect(pages).To(Receive(Equal([]string{"c Available", "d Available"})))
	f.Expect(pages).To(Receive(Equal([]string{"e Available"})))
}

// A watch prints a host again when its row changes, and once more when it is deleted or no
// longer selected.
func TestWatch(t *testing.T) {
	f := controllertest.New(t, env)
	a, b := f.Host("a"), f.Host("b")
	ctx, cancel := context.WithCancel(f.Ctx)
	pages, ended := make(printed, 10), make(chan error, 1)
	go func() { ended <- newLister(f, fleet.Filter{States: []string{"Available"}}).Watch(ctx, pages) }()
	f.Eventually(pages).Should(Receive(Equal([]string{"a Available", "b Available"})))

	// An annotation is in no column, so it prints nothing.
	controllertest.Change(f, a, func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{"note": "x"} })
	f.Report(a, func(s *infrav1.ElementalHostStatus) { s.Agent = &infrav1.HostAgent{Version: "v2"} })
	f.Eventually(pages).Should(Receive(Equal([]string{"a Available"})))
	f.SetConnection(a, infrav1.ConnectionDisconnected)
	f.Eventually(pages).Should(Receive(Equal([]string{"a AgentDisconnected"})))
	f.Delete(a) // it is not selected any more
	f.Delete(b)
	f.Eventually(pages).Should(Receive(Equal([]string{"b (deleted)"})))
	f.Host("c")
	// Its conditions are written after it is created.
	f.Eventually(pages).Should(Receive(Equal([]string{"c Available"})))

	cancel()
	f.Eventually(ended).Should(Receive(BeNil()))
}
