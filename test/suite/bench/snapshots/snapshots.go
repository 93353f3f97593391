package snapshots

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/snapshots/order"
)

// Targets: how many times longer writes may take while the agent takes snapshots, and its memory.
const (
	slowdown = 1.5
	memory   = 40 << 20
)

// aRound is how many snapshots the agent takes one after the other. After that it uploads the last one, and etcdctl takes
// one.
const aRound = 10

// settle is how long nothing is measured between two kinds of work.
const settle = 3 * time.Second

// Options are the settings of a measurement.
type Options struct {
	// Checkout is the folder of this repository.
	Checkout string
	// Cluster is the cluster whose etcd is filled, and Admin its administrator.
	Cluster *embedded.Cluster
	Admin   client.Client
	// Namespace gets objects that are written.
	Namespace string
	// Count is the number of snapshots, and Size how many bytes are stored in etcd before.
	Count int
	Size  int64
	// Quiet is how long writes are measured without snapshots in each round.
	Quiet    time.Duration
	Progress *shell.Progress
}

// measurement is what was measured so far.
type measurement struct {
	Options

	folder string
	// snapshotter and etcdctl are files of programs.
	snapshotter, etcdctl string

	load    *load
	order   order.Order
	storage *httptest.Server
	// Times of writes: without anything, and beside each kind of work.
	alone, taking, uploading, saving []time.Duration
	// Times of the work.
	taken, uploaded, saved []time.Duration
	peak, bytes            int64
}

// Measure returns the figures. The data of etcd and the snapshots are in os.TempDir, so that should be on a disk.
func Measure(ctx context.Context, o Options) (_ figures.Report, err error) {
	m := &measurement{Options: o}
	if m.folder, err = os.MkdirTemp("", "elemental-snapshots-"); err != nil {
		return figures.Report{}, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.folder)) }()
	if err := m.prepare(ctx); err != nil {
		return figures.Report{}, err
	}
	defer m.storage.Close()
	if m.load, err = startLoad(ctx, o.Admin, o.Namespace); err != nil {
		return figures.Report{}, err
	}
	defer m.load.close()
	for first := 0; first < o.Count; first += aRound {
		if err := m.round(ctx, first, min(aRound, o.Count-first)); err != nil {
			return figures.Report{}, err
		}
		o.Progress.Say("%d of %d snapshots are taken; the last %d took %s each", len(m.taken), o.Count,
			min(aRound, o.Count-first), table.Duration(measure.Quantile(m.taken[first:], 0.5)))
	}
	return m.report(), nil
}

// prepare fills etcd, and makes what the agent needs.
func (m *measurement) prepare(ctx context.Context) error {
	if err := m.buildPrograms(ctx); err != nil {
		return err
	}
	m.Progress.Say("Storing %s in etcd", table.MiB(float64(m.Size)))
	if err := fill(ctx, m.Cluster.Store, m.Size); err != nil {
		return err
	}
	m.order.Root, m.order.State = filepath.Join(m.folder, "root"), filepath.Join(m.folder, "state")
	if err := layOut(m.order.Root, m.Cluster.Store); err != nil {
		return err
	}
	if err := os.Mkdir(m.order.State, 0o700); err != nil {
		return fmt.Errorf("making the agent's state directory: %w", err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("making an identity: %w", err)
	}
	m.order.Recipients = []string{identity.Recipient().String()}
	m.storage = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	m.order.Grant = protocol.EtcdSnapshotGrant{URL: m.storage.URL, TrustBundle: encode(m.storage.Certificate())}
	return nil
}

// round measures some snapshots, and writes without any before them.
func (m *measurement) round(ctx context.Context, first, count int) error {
	for _, part := range []struct {
		samples *[]time.Duration
		do      func() error
	}{
		{&m.alone, func() error { return measure.Pause(ctx, m.Quiet) }},
		{&m.taking, func() error { return m.agent(ctx, first, count, false) }},
		{&m.uploading, func() error { return m.agent(ctx, first+count-1, 1, true) }},
		{&m.saving, func() error { return m.save(ctx) }},
	} {
		// The kernel writes what was written before, and frees what was removed.
		syscall.Sync()
		if err := measure.Pause(ctx, settle); err != nil {
			return err
		}
		samples, err := m.load.during(part.do)
		if err != nil {
			return err
		}
		*part.samples = append(*part.samples, samples...)
	}
	return os.Remove(m.saveTo())
}

// agent has the agent's code take snapshots, or upload one that it has.
func (m *measurement) agent(ctx context.Context, first, count int, upload bool) error {
	o := m.order
	for i := range count {
		o.IDs = append(o.IDs, fmt.Sprintf("s%05d", first+i))
	}
	if !upload {
		o.Grant = protocol.EtcdSnapshotGrant{}
	}
	input, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encoding an order: %w", err)
	}
	output, err := shell.Command{Args: []string{m.snapshotter}, Stdin: bytes.NewReader(input)}.Run(ctx)
	if err != nil {
		return err
	}
	var outcome order.Outcome
	if err := json.Unmarshal([]byte(output), &outcome); err != nil {
		return fmt.Errorf("reading an outcome: %w", err)
	}
	m.peak = max(m.peak, outcome.Peak)
	if upload {
		m.uploaded, m.bytes = append(m.uploaded, outcome.Uploaded), outcome.Bytes
	} else {
		m.taken = append(m.taken, outcome.Taken...)
	}
	return nil
}

// save has etcdctl take a snapshot.
func (m *measurement) save(ctx context.Context) error {
	store := m.Cluster.Store
	start := time.Now()
	_, err := shell.Run(ctx, m.etcdctl, "--endpoints="+store.URL, "--cacert="+store.Authority, "--cert="+store.Certificate, "--key="+store.Key,
		"snapshot", "save", m.saveTo())
	m.saved = append(m.saved, time.Since(start))
	return err
}

func (m *measurement) saveTo() string { return filepath.Join(m.folder, "etcdctl.db") }

// report returns the figures.
func (m *measurement) report() figures.Report {
	const most = 0.99
	alone := measure.Quantile(m.alone, most)
	beside := func(what string, samples []time.Duration) table.Row {
		p99 := measure.Quantile(samples, most)
		return table.Row{Figure: what, Value: table.Duration(p99), Bare: table.Duration(alone), Ratio: table.Ratio(float64(p99), float64(alone))}
	}
	taking := beside("Writes while the agent takes snapshots, 99th percentile; bare: without snapshots", m.taking)
	taking.Target = fmt.Sprintf("at most %.1fx", slowdown)
	taking.Missed = float64(measure.Quantile(m.taking, most)) > slowdown*float64(alone)
	taken, saved := measure.Quantile(m.taken, 0.5), measure.Quantile(m.saved, 0.5)
	return figures.Report{
		Rows: []table.Row{
			taking,
			beside("The same while it uploads one", m.uploading),
			beside("The same while etcdctl takes one", m.saving),
			{Figure: "A snapshot by the agent, median; bare: etcdctl snapshot save", Value: table.Duration(taken), Bare: table.Duration(saved), Ratio: table.Ratio(float64(taken), float64(saved))},
			{Figure: "A snapshot by the agent, longest; bare: etcdctl snapshot save", Value: table.Duration(slices.Max(m.taken)), Bare: table.Duration(slices.Max(m.saved))},
			{Figure: "An upload, encrypted, median", Value: table.Duration(measure.Quantile(m.uploaded, 0.5))},
			{
				Figure: "Memory of the agent, at most", Value: table.MiB(float64(m.peak)), Target: "below " + table.MiB(memory), Missed: m.peak >= memory,
			},
		},
		Notes: []string{fmt.Sprintf("etcd and kube-apiserver run on this machine; etcd waits for the disk. %s were stored in etcd before. "+
			"The agent's code takes %s snapshots, %d in a row, onto the disk that etcd's data is on. It uploads one of each row to a server on this machine that drops it (%s). "+
			"Then etcdctl takes one. Meanwhile %d clients patch a ConfigMap each, with %s of new data, %d times a second; %s writes in all are counted, those without snapshots for %s before each row. "+
			"Memory is the largest RSS of a program with all packages of the agent, without its connection to a manager.",
			table.MiB(float64(m.Size)), table.Count(len(m.taken)), aRound, table.MiB(float64(m.bytes)),
			writers, table.KiB(valueSize), int(time.Second/writePeriod), table.Count(len(m.alone)+len(m.taking)+len(m.uploading)+len(m.saving)), m.Quiet)},
	}
}

// encode returns a certificate in PEM.
func encode(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}
