package client

import (
	"context"
	"net/http"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Restores are the requests of a host that restores etcd.
type Restores struct{ Client *Client }

// ControlPlaneSetup gets what a restore sets up the control plane of this host from.
func (r Restores) ControlPlaneSetup(ctx context.Context, request protocol.ControlPlaneSetupRequest) (protocol.ControlPlaneSetup, error) {
	var setup protocol.ControlPlaneSetup
	err := r.Client.call(ctx, call{
		name: "asking what to set up the control plane from", method: http.MethodPost, path: protocol.PathControlPlaneSetup, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error { return decodeUpTo(r, &setup, protocol.MaxControlPlaneSetupBytes) })
	return setup, err
}
