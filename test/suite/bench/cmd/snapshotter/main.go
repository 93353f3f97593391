// Command snapshotter takes snapshots of etcd as the agent does, and uploads the last one. It contains all packages of the
// agent, so that its memory is that of an agent. See package snapshots.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/snapshots/order"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "snapshotter:", err)
		os.Exit(1)
	}
}

// run reads an order and writes its outcome.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order.Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	outcome, err := carryOut(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(outcome)
}

func carryOut(ctx context.Context, o order.Order) (order.Outcome, error) {
	var outcome order.Outcome
	store := &snapshot.Store{
		Root: o.Root, Folder: filepath.Join(o.State, snapshot.Folder), System: durable.OS{}, Space: enough, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	for _, id := range o.IDs {
		start := time.Now()
		want := protocol.EtcdSnapshot{ID: id, Cluster: protocol.EtcdCluster{Namespace: "bench", Name: "bench"}, Keep: 1}
		if err := store.Take(ctx, want); err != nil {
			return outcome, err
		}
		outcome.Taken = append(outcome.Taken, time.Since(start))
	}
	if o.Grant.URL != "" {
		uploader := &upload.Uploader{Source: store, Manager: func() upload.Manager { return manager(o.Grant) }, Log: slog.New(slog.DiscardHandler)}
		start := time.Now()
		done, err := uploader.Upload(ctx, protocol.EtcdSnapshotUpload{ID: o.IDs[len(o.IDs)-1], Recipients: o.Recipients})
		if err != nil {
			return outcome, err
		}
		outcome.Uploaded, outcome.Bytes = time.Since(start), done.SizeBytes
	}
	var err error
	outcome.Peak, err = order.Peak()
	return outcome, err
}

// enough is the space of a disk on which there is room. Hosts leave a part of theirs free, which this machine need not.
func enough(string) (free, total int64, err error) { return 1 << 50, 1 << 50, nil }

// manager permits any upload.
type manager protocol.EtcdSnapshotGrant

func (m manager) EtcdSnapshotGrant(context.Context, protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error) {
	return protocol.EtcdSnapshotGrant(m), nil
}
