package client

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Snapshots are the requests of a host that uploads or downloads snapshots of etcd.
type Snapshots struct{ Client *Client }

// EtcdSnapshotGrant gets the permission to upload a snapshot of etcd.
func (s Snapshots) EtcdSnapshotGrant(ctx context.Context, request protocol.EtcdSnapshotGrantRequest) (protocol.EtcdSnapshotGrant, error) {
	var grant protocol.EtcdSnapshotGrant
	err := s.Client.call(ctx, call{
		name: "asking for the permission to upload a snapshot", method: http.MethodPost, path: protocol.PathEtcdSnapshotUpload, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error { return decode(r, &grant) })
	return grant, err
}

// EtcdSnapshotFetch gets the permission to download the snapshot that a restore begins with, and
// its key.
func (s Snapshots) EtcdSnapshotFetch(ctx context.Context, request protocol.EtcdSnapshotFetchRequest) (protocol.EtcdSnapshotFetchGrant, error) {
	var grant protocol.EtcdSnapshotFetchGrant
	err := s.Client.call(ctx, call{
		name: "asking for the permission to download a snapshot", method: http.MethodPost, path: protocol.PathEtcdSnapshotFetch, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error { return decode(r, &grant) })
	return grant, err
}

// RelayUpload connects to the storage through the manager, over a connection of its own, for the upload of a
// snapshot. The caller owns the connection. It ends when this client hands over to another one, and with
// Reconnect.
func (s Snapshots) RelayUpload(ctx context.Context, snapshot string) (net.Conn, error) {
	return s.relay(ctx, url.Values{"snapshot": {snapshot}})
}

// RelayFetch is RelayUpload for the download of a restore.
func (s Snapshots) RelayFetch(ctx context.Context, operation string) (net.Conn, error) {
	return s.relay(ctx, url.Values{"restore": {operation}})
}

func (s Snapshots) relay(ctx context.Context, query url.Values) (net.Conn, error) {
	var conn net.Conn
	err := s.Client.call(ctx, call{
		name: "connecting to the storage through the manager", method: http.MethodGet, path: protocol.PathEtcdSnapshotRelay, query: query,
		header:  http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol.RelayProtocol}},
		timeout: CallTimeout, accept: []int{http.StatusSwitchingProtocols},
		upgraded: func(upgraded net.Conn) { conn = upgraded },
	}, nil)
	return conn, err
}
