package direct

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

// Prefix starts the path of each request to a Handler.
const Prefix = "/kubeconfigs/"

// Clusters knows workload clusters.
type Clusters interface {
	// Direct returns how users reach a cluster's API servers by themselves. Of its errors,
	// callers are told proxy.ErrNoCluster and proxy.ErrUnreachable.
	Direct(ctx context.Context, cluster types.NamespacedName) (Cluster, error)
}

// Cluster is a workload cluster that users can reach by themselves.
type Cluster struct {
	// TTL is how long a certificate of a user is valid; zero if users get none.
	TTL time.Duration
	// CA verifies the API servers, PEM.
	CA []byte
	// Servers are the API servers.
	Servers []Server
	// Admin is a client with the rights of an administrator.
	Admin client.Client
}

// Server is an API server of a cluster.
type Server struct {
	// Host is the name of its ElementalHost.
	Host string
	// Address is where it is reached, host:port.
	Address string
}

// Options of a Handler.
type Options struct {
	// Authenticator knows the users of the management cluster. It may remove credentials
	// from the request.
	Authenticator authenticator.Request
	// Authorizer knows their rights in the management cluster.
	Authorizer authorizer.Authorizer
	Clusters   Clusters
	// URL is where users reach the gateway, without a slash at the end.
	URL string
	// CA returns the certificates, PEM, by which users verify the gateway; blank if they know
	// them already.
	CA    func(ctx context.Context) (string, error)
	Clock clock.WithTicker
	// Audit gets a line for each certificate that was issued.
	Audit   logr.Logger
	Metrics prometheus.Registerer
}

// Handler answers requests for kubeconfigs. Use New.
type Handler struct {
	o       Options
	gate    proxy.Gate
	limits  *limits
	metrics *metrics
}

// New returns a Handler. It fails if its metrics are registered already.
func New(o Options) (*Handler, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Handler{
		o: o, limits: newLimits(o.Clock), metrics: m,
		gate: proxy.Gate{Authenticator: o.Authenticator, Authorizer: o.Authorizer, Subresource: "kubeconfig"},
	}, nil
}

// ServeHTTP implements http.Handler. GET makes a key, which is in the answer and nowhere
// else; POST takes a request for a certificate, so the key stays with the caller.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kubeconfig, err := h.serve(w, r)
	h.metrics.count(err)
	if err != nil {
		proxy.Refuse(w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/yaml")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(kubeconfig) //nolint:gosec // no browser takes it for HTML
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	asked, err := parse(r)
	if err != nil {
		return nil, err
	}
	as, err := h.gate.Admit(r, asked.cluster)
	if err != nil {
		return nil, err
	}
	done, ok := h.limits.begin(as.User)
	if !ok {
		return nil, apierrors.NewTooManyRequests("too many kubeconfigs were requested", retrySeconds)
	}
	defer done()
	to, err := h.o.Clusters.Direct(r.Context(), asked.cluster)
	if err != nil {
		return nil, proxy.ConnectError(err)
	}
	ttl, err := asked.lifetime(to.TTL)
	if err != nil {
		return nil, err
	}
	ca, err := h.o.CA(r.Context())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	key, request, err := h.request(w, r, as)
	if err != nil {
		return nil, err
	}
	issued, err := issuer{admin: to.Admin, clock: h.o.Clock}.issue(r.Context(), request, as, ttl)
	if err != nil {
		return nil, issueError(err)
	}
	h.o.Audit.Info("Issued", "user", as.User, "groups", as.Groups, "cluster", asked.cluster.String(), "serial", issued.leaf.SerialNumber.Text(16),
		"notAfter", issued.leaf.NotAfter.UTC().Format(time.RFC3339), "keyOfCaller", key == nil)
	content := contents{
		url: h.o.URL, ca: []byte(ca), cluster: asked.cluster, entry: asked.entryOf(as), to: to, certificate: issued.pem, key: key,
	}
	return content.kubeconfig()
}

// request returns the request for a certificate, and its key unless the caller has that.
func (h *Handler) request(w http.ResponseWriter, r *http.Request, as proxy.Identity) (key []byte, request signingRequest, err error) {
	if r.Method == http.MethodGet {
		return newRequest(as)
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, signingRequest{}, err
	}
	request, err = foreignRequest(body, as)
	return nil, request, err
}

// issueError returns what the caller is told of an error of issue. Answers of a workload
// cluster's API server are not passed on as they are: 401 would be taken for the gateway's.
func issueError(err error) error {
	if errors.Is(err, errLifetime) {
		return apierrors.NewInternalError(err)
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("issuing a certificate in the workload cluster: %v", err))
}
