package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	healthTimeout   = 10 * time.Second
	maxHealthAnswer = 64 << 10
	// pingAfter and pingTimeout end a request over a connection that is dead.
	pingAfter   = 15 * time.Second
	pingTimeout = 15 * time.Second
)

// Version returns the version of the member, such as 3.6.8.
func Version(ctx context.Context, o Options) (string, error) {
	var version struct {
		Server string `json:"etcdserver"`
	}
	if err := o.get(ctx, "/version", &version); err != nil {
		return "", fmt.Errorf("asking etcd for its version: %w", err)
	}
	return version.Server, nil
}

// Revision returns the revision of the member's data, by the member's JSON gateway.
func Revision(ctx context.Context, o Options) (int64, error) {
	var status struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if err := o.call(ctx, http.MethodPost, "/v3/maintenance/status", "{}", &status); err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	return status.Header.Revision, nil
}

// Members returns the names of the members of the cluster, by the member's JSON gateway. A member
// that has not started has a blank name. The cluster's majority has agreed to the answer.
func Members(ctx context.Context, o Options) ([]string, error) {
	var answer struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
		Message string `json:"message"`
	}
	if err := o.call(ctx, http.MethodPost, "/v3/cluster/member/list", `{"linearizable":true}`, &answer); err != nil {
		return nil, fmt.Errorf("asking etcd for its members: %w", err)
	}
	if len(answer.Members) == 0 {
		return nil, fmt.Errorf("asking etcd for its members: it names none: %.256s", answer.Message)
	}
	names := make([]string, 0, len(answer.Members))
	for _, member := range answer.Members {
		names = append(names, member.Name)
	}
	return names, nil
}

// Health returns nil if the member can read with the agreement of its cluster, so that a
// majority of the members is well, and the cluster raises no alarm.
func Health(ctx context.Context, o Options) error {
	var health struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	if err := o.get(ctx, "/health", &health); err != nil {
		return fmt.Errorf("asking etcd for its health: %w", err)
	}
	if health.Health != "true" {
		if health.Reason == "" {
			return errors.New("etcd says that it is not healthy")
		}
		return fmt.Errorf("etcd says that it is not healthy: %.256s", health.Reason)
	}
	return nil
}

// get decodes an answer of the member.
func (o Options) get(ctx context.Context, path string, into any) error {
	return o.call(ctx, http.MethodGet, path, "", into)
}

// call decodes the answer to a request.
func (o Options) call(ctx context.Context, method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	transport := o.transport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(o.Endpoint, "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("it answers with HTTP %d", response.StatusCode)
	}
	return nil
}

// transport returns a Transport for one request.
func (o Options) transport() *http.Transport {
	return &http.Transport{
		DialContext: o.Dial, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true, DisableCompression: true,
		TLSHandshakeTimeout: healthTimeout,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}
