package api

import (
	"context"
	"errors"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// etcdSnapshotRelay turns the connection of the request into one to the storage of snapshots, for the
// upload or the restore in the host's plan. For anything else the answer is the same.
func (h *Handler) etcdSnapshotRelay(w http.ResponseWriter, r *http.Request, from caller) error {
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowRequest(key); !ok {
		return problem.TooManyRequests(after)
	}
	if err := checkUpgrade(w, r, protocol.RelayProtocol); err != nil {
		return err
	}
	snapshot, err := parameter(r, "snapshot")
	if err != nil {
		return err
	}
	restore, err := parameter(r, "restore")
	if err != nil {
		return err
	}
	host, cluster, err := h.current(r.Context(), from)
	if err != nil {
		return err
	}
	isAsked, err := h.asksForStorage(r.Context(), host, cluster, snapshot, restore)
	if err != nil {
		return err
	}
	if !isAsked || cluster.Infra == nil {
		return problem.NoStorage()
	}
	address, err := h.uploads.RelayAddress(r.Context(), host, cluster.Infra)
	if err != nil {
		return err
	}
	return h.carry(w, r, key, address)
}

// carry carries the connection of the request to the storage, until one of both ends it.
func (h *Handler) carry(w http.ResponseWriter, r *http.Request, host client.ObjectKey, address string) error {
	storage, err := h.relay.Open(r.Context(), host, address)
	if errors.Is(err, snapshotrelay.ErrBusy) {
		return noSlot()
	}
	if err != nil {
		p := problem.Busy(busyDelay)
		p.Detail = "the manager can't connect to the storage " + address
		return p
	}
	conn, err := h.upgrade(w, protocol.RelayProtocol)
	if err != nil || conn == nil {
		storage.Close()
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-h.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	storage.Carry(ctx, conn)
	return nil
}

// asksForStorage reports whether the host's plan has that upload, or that restore with a download.
func (h *Handler) asksForStorage(ctx context.Context, host *infrav1.ElementalHost, cluster plan.Cluster, snapshot, restore string) (bool, error) {
	if restore != "" {
		in, err := h.restore(ctx, host, cluster, restore)
		return in.Uploaded, err
	}
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return false, err
	}
	wanted := plan.For(host, site, cluster).Desired.EtcdSnapshotUpload
	return wanted != nil && wanted.Folder == nil && wanted.ID == snapshot, nil
}
