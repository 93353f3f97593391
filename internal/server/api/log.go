package api

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// concurrentLogs bounds the logs that are received at a time, each of more than 1 MiB.
	concurrentLogs = 8
	// logDelay is when a host tries again that finds as many of them.
	logDelay = 10 * time.Second
)

// Logs keeps logs of hosts.
type Logs interface {
	// Check returns a problem unless the host, with that key, is asked for a log by the request.
	Check(host *infrav1.ElementalHost, fingerprint, request string) error
	// Accept keeps the log. It is durable when Accept returns nil.
	Accept(ctx context.Context, host types.NamespacedName, fingerprint, request string, log protocol.HostLog) error
}

// log takes the log that the host is asked for. Nothing is read of a log that nobody asked for.
func (h *Handler) log(w http.ResponseWriter, r *http.Request, from caller) error {
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowRequest(key); !ok {
		return problem.TooManyRequests(after)
	}
	request, err := parameter(r, "request")
	if err != nil {
		return err
	}
	if request == "" {
		return problem.BadRequest("The parameter request is missing")
	}
	host, err := h.hosts.ReadLive(r.Context(), key)
	if err != nil {
		return err
	}
	if err := h.logs.Check(host, from.fingerprint, request); err != nil {
		return err
	}
	select {
	case h.receiving <- struct{}{}:
		defer func() { <-h.receiving }()
	default:
		return problem.Busy(logDelay)
	}
	in, err := decodeUpTo[protocol.HostLog](w, r, protocol.MaxLogRequestBytes, protocol.LogTimeout)
	if err != nil {
		return err
	}
	if err := h.logs.Accept(r.Context(), key, from.fingerprint, request, in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
