// Package endpointname derives the DNS names of control plane endpoints of type Tunnel.
// The controller records them, and the gateway routes by them. A name follows from the
// namespace and the name of the Cluster alone, so no cluster can have another's name. It
// does no I/O.
package endpointname

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxDomain is the maximum length of a domain in Names: a DNS name has at most 253
// characters, of which label, namespace and "svc" take up to 132.
const MaxDomain = 120

// suffix is the end of every label.
const suffix = "-endpoint"

// hashed matches the labels of clusters whose name is no part of a label.
var hashed = regexp.MustCompile(`^c[0-9a-f]{10}` + suffix + `$`)

// Names derives the names of a management cluster's endpoints.
type Names struct {
	// ClusterDomain is the domain of the management cluster's own DNS, such as
	// cluster.local. The names are those of Services.
	ClusterDomain string
	// EndpointDomain is a domain whose names below all lead to the gateway. If it is set,
	// the names are in it, and there are no Services.
	EndpointDomain string
}

// Of returns the name of a Cluster's endpoint, in lower case.
func (n Names) Of(namespace, cluster string) string {
	domain := "svc." + n.ClusterDomain
	if n.EndpointDomain != "" {
		domain = n.EndpointDomain
	}
	return strings.ToLower(Label(cluster) + "." + namespace + "." + domain)
}

// Service returns the name of a Service in the management cluster.
func (n Names) Service(namespace, name string) string {
	return strings.ToLower(name + "." + namespace + ".svc." + n.ClusterDomain)
}

// Label returns the first label of the name, which is also the name of the Service. A name
// of a Cluster that does not fit into a label, or looks as if it had not, is replaced by a
// hash: so different Clusters of a namespace have different labels.
func Label(cluster string) string {
	label := cluster + suffix
	if len(validation.IsDNS1035Label(label)) == 0 && !hashed.MatchString(label) {
		return label
	}
	sum := sha256.Sum256([]byte(cluster))
	return "c" + hex.EncodeToString(sum[:5]) + suffix
}
