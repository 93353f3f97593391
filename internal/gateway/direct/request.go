package direct

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const (
	// maxBody bounds the body of a request, maxEntry the name of a user in a kubeconfig.
	maxBody  = 128 << 10
	maxEntry = 512
	// bodyTimeout bounds how long a body takes.
	bodyTimeout = 10 * time.Second
	minTTL      = infrav1.MinDirectAccessTTLSeconds * time.Second
)

// asked is what a caller asks for.
type asked struct {
	cluster types.NamespacedName
	// entry is the name that the caller's own user has in kubeconfigs; blank for the user's.
	entry string
	// ttl is zero unless the caller wants a shorter one than the cluster's.
	ttl time.Duration
}

// parse reads method and URL of a request.
func parse(r *http.Request) (asked, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return asked{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: "GET a kubeconfig, or POST a PEM request for a certificate",
		}}
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), Prefix), "/")
	// Names that are valid need no encoding, and have no slash.
	if !strings.HasPrefix(r.URL.EscapedPath(), Prefix) || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return asked{}, apierrors.NewBadRequest("the path must be " + Prefix + "NAMESPACE/CLUSTER")
	}
	out := asked{cluster: types.NamespacedName{Namespace: namespace, Name: name}}
	for key, values := range r.URL.Query() {
		if len(values) != 1 {
			return asked{}, apierrors.NewBadRequest(fmt.Sprintf("the parameter %q is there more than once", key))
		}
		var err error
		switch value := values[0]; key {
		case "user":
			out.entry, err = value, checkEntry(value)
		case "ttlSeconds":
			out.ttl, err = parseTTL(value)
		default:
			err = fmt.Errorf("the parameter %q is unknown: there are user and ttlSeconds", key)
		}
		if err != nil {
			return asked{}, apierrors.NewBadRequest(err.Error())
		}
	}
	return out, nil
}

func checkEntry(name string) error {
	if name == "" || len(name) > maxEntry || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("user must be the name of your user in your kubeconfig, with at most %d bytes", maxEntry)
	}
	return nil
}

func parseTTL(value string) (time.Duration, error) {
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil || seconds < infrav1.MinDirectAccessTTLSeconds || seconds > infrav1.MaxDirectAccessTTLSeconds {
		return 0, fmt.Errorf("ttlSeconds must be a number from %d to what spec.access.direct of the cluster permits", infrav1.MinDirectAccessTTLSeconds)
	}
	return time.Duration(seconds) * time.Second, nil
}

// lifetime returns how long the certificate is to be valid. A caller may only want less than
// the cluster permits.
func (a asked) lifetime(permitted time.Duration) (time.Duration, error) {
	switch {
	case permitted < minTTL:
		return 0, apierrors.NewForbidden(resource(), a.cluster.Name,
			errors.New("nobody has direct access to the cluster: spec.access.direct of its ElementalCluster is not set"))
	case a.ttl > permitted:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("ttlSeconds is longer than the cluster permits, %d", int(permitted.Seconds())))
	}
	return cmp.Or(a.ttl, permitted), nil
}

// entryOf returns the name of the caller's own user in kubeconfigs.
func (a asked) entryOf(as proxy.Identity) string { return cmp.Or(a.entry, as.User) }

// readBody reads the body of a request, which must come soon.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	controller := http.NewResponseController(w)
	// A connection without deadlines is closed by its server's own.
	_ = controller.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a request for a certificate has at most %d bytes", maxBody))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the body: " + err.Error())
	}
	// The deadline must not end the wait for the certificate.
	_ = controller.SetReadDeadline(time.Time{})
	return body, nil
}
