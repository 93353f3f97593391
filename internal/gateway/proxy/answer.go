package proxy

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retrySeconds is when callers may try again after a refusal that does not last.
const retrySeconds = 1

func unauthorized() error {
	return apierrors.NewUnauthorized("the gateway takes the credentials that the management cluster takes")
}

func badRequest(err error) error { return apierrors.NewBadRequest(err.Error()) }

func tooManyRequests() error {
	return apierrors.NewTooManyRequests("the user or the cluster has too many open requests through the gateway", retrySeconds)
}

func unavailable(err error) error { return apierrors.NewServiceUnavailable(err.Error()) }

// ConnectError returns what the caller is told of an error of Clusters.
func ConnectError(err error) error {
	switch {
	case errors.Is(err, ErrNoCluster):
		// The caller may have access to it, so its absence is no secret.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: ErrNoCluster.Error(),
		}}
	case errors.Is(err, ErrUnreachable):
		return unavailable(err)
	default:
		return apierrors.NewInternalError(err)
	}
}

// Refuse answers a request with an error as Kubernetes' API servers do. It does nothing if
// the answer of a proxied request has begun.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http would read the body, however slowly it comes, before it answers.
		w.Header().Set("Connection", "close")
	}
	writeError(w, err)
}

func writeError(w http.ResponseWriter, err error) {
	if recorded, ok := w.(*recorder); ok && recorded.code != 0 {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	answer := status.Status()
	answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	// A Status has numbers and strings only, so it can be encoded.
	body, _ := json.Marshal(answer)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	if answer.Details != nil && answer.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(answer.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(answer.Code))
	_, _ = w.Write(body)
}

// recorder records the code of an answer.
type recorder struct {
	http.ResponseWriter
	// code is 0 until the answer begins.
	code int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(content []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(content)
}

// Hijack implements http.Hijacker.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		// httputil.ReverseProxy writes the answer of an upgrade to the connection.
		r.code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// Unwrap serves http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
