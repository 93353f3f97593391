package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	hostclient "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/fetch"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

// newRelayed returns an API that carries connections to its storage, which hosts are to use.
func newRelayed(t *testing.T) *uploads {
	t.Helper()
	u := newUploadsWith(t, func(o *server.Options, storage objectstore.Store) {
		o.SnapshotRelays = snapshotrelay.Endpoints{strings.TrimPrefix(storage.Endpoint, "https://")}
	})
	u.route(infrav1.EtcdSnapshotRouteManager)
	return u
}

func (u *uploads) route(route infrav1.EtcdSnapshotRoute) {
	u.tb.Helper()
	u.patchCluster(u.infra, func(c *infrav1.ElementalCluster) { c.Spec.EtcdSnapshots.Destination.Route = route })
	u.cachedSoon(u.infra)
}

// noWay is the dialler of a host that reaches only the manager.
func noWay(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("there is no way from the site")
}

// A host that reaches only the manager uploads a snapshot and gets it back, by the agent's own code, with a
// real storage that checks signatures.
func TestSnapshotsThroughTheManager(t *testing.T) {
	f := newFetchesOf(t, newRelayed(t), func(u *upload.Uploader) {
		manager, ok := u.Manager().(hostclient.Snapshots)
		if !ok {
			t.Fatal("the manager is no client")
		}
		u.Dial, u.Relay = noWay, manager.RelayUpload
	})
	f.must(os.RemoveAll(f.store.Folder))
	op := f.a.plan("").Operation
	manager := hostclient.Snapshots{Client: f.a.client()}
	fetcher := &fetch.Fetcher{
		Store: f.store, Manager: func() fetch.Manager { return manager }, Dial: noWay, Relay: manager.RelayFetch, Log: slog.New(slog.DiscardHandler),
	}
	f.must(fetcher.Fetch(t.Context(), op.ID, *op.EtcdRestore))
	_, facts, err := f.store.Verify(t.Context(), f.facts.ID)
	f.must(err)
	f.Expect(facts).To(Equal(f.facts))
	f.Eventually(func() float64 { return f.metric("elemental_agent_api_snapshot_relays") }, eventually, often).Should(BeZero(), "connections end")
}

// relayOf is the request for a connection to the storage.
func relayOf(query string) string {
	return "GET " + protocol.PathEtcdSnapshotRelay + "?" + query + " HTTP/1.1\r\nHost: manager\r\nConnection: Upgrade\r\nUpgrade: " + protocol.RelayProtocol + "\r\n\r\n"
}

// A host reaches the storage only for the upload or the restore in its plan, and only where the route of its
// cluster leads through the manager.
func TestThreat99_OnlyWhatThePlanHas(t *testing.T) {
	u := newRelayed(t)
	a, other := u.member("m1"), u.member("m2")
	id := u.last(a, 1)
	u.has(a, u.facts(id))
	_, got := a.asks(relayOf("snapshot=" + id))
	u.Expect(got.status).To(Equal(http.StatusSwitchingProtocols), got.body)

	refused := func(what string, a *agent, request string, status int) {
		t.Helper()
		_, got := a.asks(request)
		u.Expect(got.status).To(Equal(status), "%s: %s", what, got.body)
	}
	refused("another snapshot", a, relayOf("snapshot=20260101T000000Z"), http.StatusNotFound)
	refused("nothing", a, relayOf(""), http.StatusNotFound)
	refused("a restore that is not asked for", a, relayOf("restore=claim-m1.1"), http.StatusNotFound)
	refused("another host", other, relayOf("snapshot="+id), http.StatusNotFound)
	refused("a long parameter", a, relayOf("snapshot="+strings.Repeat("1", 500)), http.StatusBadRequest)
	refused("no upgrade", a, strings.Replace(relayOf("snapshot="+id), "Connection: Upgrade", "Connection: keep-alive", 1), http.StatusUpgradeRequired)
	refused("the protocol of tunnels", a, strings.Replace(relayOf("snapshot="+id), protocol.RelayProtocol, protocol.TunnelProtocol, 1), http.StatusUpgradeRequired)
	refused("a body", a, strings.Replace(relayOf("snapshot="+id), "\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc", 1), http.StatusBadRequest)
	u.Expect(a.call(http.MethodGet, protocol.PathEtcdSnapshotRelay+"?snapshot="+id, nil).status).To(Equal(http.StatusUpgradeRequired), "HTTP/2")

	u.route(infrav1.EtcdSnapshotRouteDirect)
	refused("a direct route", a, relayOf("snapshot="+id), http.StatusNotFound)
	u.route(infrav1.EtcdSnapshotRouteManager)
	u.cachedSoon(u.patch(a.name, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} }))
	refused("a fenced host", a, relayOf("snapshot="+id), http.StatusForbidden)
}

// The manager connects nowhere that an administrator of the management cluster has not named, whatever an
// ElementalCluster says. Its host learns no more than where to look.
func TestThreat99_OtherStorages(t *testing.T) {
	u := newRelayed(t)
	a := u.member("m1")
	id := u.last(a, 1)
	u.has(a, u.facts(id))
	inside, err := net.Listen("tcp", "127.0.0.1:0")
	u.must(err)
	t.Cleanup(func() { _ = inside.Close() })
	u.patchCluster(u.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.EtcdSnapshots.Destination.S3.Endpoint = "https://" + inside.Addr().String()
	})
	u.cachedSoon(u.infra)
	_, got := a.asks(relayOf("snapshot=" + id))
	u.Expect(got.status).To(Equal(http.StatusServiceUnavailable), got.body)
	u.Expect(got.body).To(And(ContainSubstring("EtcdSnapshotsUploaded"), Not(ContainSubstring(inside.Addr().String()))))
	u.Expect(u.ask(a, id, 1_010_000).status).To(Equal(http.StatusServiceUnavailable), "no permission either")
}

// An agent that can't use the route is told so, with what to do.
func TestRelayNeedsANewerAgent(t *testing.T) {
	u := newRelayed(t)
	a := u.member("m1")
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityEtcdSnapshot, protocol.CapabilityEtcdSnapshotUpload)
	u.report(a, protocol.Report{Hello: &hello})
	id := u.last(a, 1)
	u.has(a, u.facts(id))
	got := u.ask(a, id, 1_010_000)
	u.Expect(got.status).To(Equal(http.StatusConflict), got.body)
	u.Expect(got.body).To(ContainSubstring("update the agent"))
}
