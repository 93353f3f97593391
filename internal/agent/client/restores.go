package client

import (
	"context"
	"net/http"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Restores are the requests of a host that restores etcd.
type Restores struct{ Client *Client }

// EtcdSnapshotFetch gets the permission to download the snapshot that a restore begins with, and
// its key.
func (r Restores) EtcdSnapshotFetch(ctx context.Context, request protocol.EtcdSnapshotFetchRequest) (protocol.EtcdSnapshotFetchGrant, error) {
	var grant protocol.EtcdSnapshotFetchGrant
	err := r.Client.call(ctx, call{
		name: "asking for the permission to download a snapshot", method: http.MethodPost, path: protocol.PathEtcdSnapshotFetch, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error { return decode(r, &grant) })
	return grant, err
}

// ControlPlaneSetup gets what a restore sets up the control plane of this host from.
func (r Restores) ControlPlaneSetup(ctx context.Context, request protocol.ControlPlaneSetupRequest) (protocol.ControlPlaneSetup, error) {
	var setup protocol.ControlPlaneSetup
	err := r.Client.call(ctx, call{
		name: "asking what to set up the control plane from", method: http.MethodPost, path: protocol.PathControlPlaneSetup, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error { return decodeUpTo(r, &setup, protocol.MaxControlPlaneSetupBytes) })
	return setup, err
}
