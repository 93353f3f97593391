package snapshotrelay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

const eventually = 30 * time.Second

// rig is a relay with a storage.
type rig struct {
	*WithT

	t       *testing.T
	relay   *snapshotrelay.Relay
	storage net.Listener
	metrics *prometheus.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	leaks.Check(t)
	r := &rig{WithT: NewWithT(t), t: t, metrics: prometheus.NewRegistry()}
	var err error
	r.relay, err = snapshotrelay.New(r.metrics)
	r.Expect(err).NotTo(HaveOccurred())
	r.storage, err = net.Listen("tcp", "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = r.storage.Close() })
	return r
}

// carried is a connection that is carried.
type carried struct {
	// host and storage are the two ends.
	host, storage net.Conn
	// ended is closed when it is no longer carried.
	ended chan struct{}
}

// open has a connection of a host carried until the context ends.
func (r *rig) open(ctx context.Context, host string) carried {
	r.t.Helper()
	connection, err := r.relay.Open(ctx, types.NamespacedName{Namespace: "ns", Name: host}, r.storage.Addr().String())
	r.Expect(err).NotTo(HaveOccurred())
	c := carried{ended: make(chan struct{})}
	c.storage, err = r.storage.Accept()
	r.Expect(err).NotTo(HaveOccurred())
	near, far := net.Pipe()
	c.host = near
	r.t.Cleanup(func() { _, _ = near.Close(), c.storage.Close() })
	go func() {
		defer close(c.ended)
		connection.Carry(ctx, far)
	}()
	return c
}

func (r *rig) running() float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	r.Expect(err).NotTo(HaveOccurred())
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// Both directions are carried at once, unchanged, and the end of one side is the end of the other.
func TestCarries(t *testing.T) {
	r := newRig(t)
	c := r.open(t.Context(), "a")
	r.Expect(r.running()).To(Equal(1.0))
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	for _, way := range [][2]net.Conn{{c.host, c.storage}, {c.storage, c.host}} {
		go func() { _, _ = way[0].Write(sent) }()
		got := make([]byte, len(sent))
		_, err := io.ReadFull(way[1], got)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(bytes.Equal(got, sent)).To(BeTrue())
	}
	r.Expect(c.storage.Close()).To(Succeed())
	_, err := c.host.Read(make([]byte, 1))
	r.Expect(err).To(MatchError(io.EOF))
	r.Eventually(c.ended, eventually).Should(BeClosed())
	r.Expect(r.running()).To(BeZero())
}

// A connection ends with its context, with a newer one of its host, and if nobody sends anything.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig, cancel func()){
		"the manager stops":       func(_ *rig, cancel func()) { cancel() },
		"the host connects again": func(r *rig, _ func()) { r.open(r.t.Context(), "a") },
		"silence":                 func(*rig, func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if name == "silence" {
				r.relay.SetIdle(50 * time.Millisecond)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := r.open(ctx, "a")
			end(r, cancel)
			r.Eventually(c.ended, eventually).Should(BeClosed())
			_, err := c.storage.Read(make([]byte, 1))
			r.Expect(err).To(HaveOccurred())
		})
	}
}

// Few connections are carried at a time, and one that ends makes room.
func TestLimit(t *testing.T) {
	r := newRig(t)
	var first carried
	for i := range 16 {
		c := r.open(t.Context(), string(rune('a'+i)))
		if i == 0 {
			first = c
		}
	}
	_, err := r.relay.Open(t.Context(), types.NamespacedName{Name: "z"}, r.storage.Addr().String())
	r.Expect(errors.Is(err, snapshotrelay.ErrBusy)).To(BeTrue(), "%v", err)
	r.Expect(first.host.Close()).To(Succeed())
	r.Eventually(first.ended, eventually).Should(BeClosed())
	r.open(t.Context(), "z")
}

// A storage that is not there takes no place.
func TestNoStorage(t *testing.T) {
	r := newRig(t)
	r.Expect(r.storage.Close()).To(Succeed())
	for range 20 {
		_, err := r.relay.Open(t.Context(), types.NamespacedName{Name: "z"}, r.storage.Addr().String())
		r.Expect(err).To(MatchError(ContainSubstring("connecting to the storage")))
	}
	r.Expect(r.running()).To(BeZero())
}

// silent is the address of a storage that does not answer.
const silent = "192.0.2.1:443"

// openSilent has a host connect to the storage that does not answer, in the background.
func (r *rig) openSilent(ctx context.Context, host string) (result chan error) {
	result = make(chan error, 1)
	go func() {
		_, err := r.relay.Open(ctx, types.NamespacedName{Namespace: "ns", Name: host}, silent)
		result <- err
	}()
	return result
}

// A host that connects again does not also wait for its former storage.
func TestConnectsOnce(t *testing.T) {
	r := newRig(t)
	calling := make(chan struct{}, 1)
	r.relay.SetSilent(silent, func() { calling <- struct{}{} })
	result := r.openSilent(t.Context(), "a")
	r.Eventually(calling, eventually).Should(Receive())
	r.open(t.Context(), "a")
	r.Eventually(result, eventually).Should(Receive(MatchError(context.Canceled)))
	r.Expect(r.running()).To(Equal(1.0))
}

// A storage that does not answer leaves room for others, however many hosts have snapshots for it.
func TestSilentStorage(t *testing.T) {
	r := newRig(t)
	calling := make(chan struct{}, 16)
	r.relay.SetSilent(silent, func() { calling <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	var waiting []chan error
	for i := range 4 {
		waiting = append(waiting, r.openSilent(ctx, string(rune('a'+i))))
		r.Eventually(calling, eventually).Should(Receive())
	}
	r.Eventually(r.openSilent(ctx, "e"), eventually).Should(Receive(MatchError(snapshotrelay.ErrBusy)))
	for i := range 12 {
		r.open(t.Context(), string(rune('f'+i)))
	}
	cancel()
	for _, result := range waiting {
		r.Eventually(result, eventually).Should(Receive(MatchError(context.Canceled)))
	}
	r.Expect(r.running()).To(Equal(12.0))
	again := r.openSilent(t.Context(), "a")
	r.Eventually(calling, eventually).Should(Receive(), "the places are free again")
	r.open(t.Context(), "a")
	r.Eventually(again, eventually).Should(Receive(HaveOccurred()))
}
