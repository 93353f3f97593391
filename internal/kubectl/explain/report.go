package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
)

// Report is what there is to say about one object.
type Report struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Summary is one line.
	Summary string `json:"summary"`
	Facts   []Fact `json:"facts,omitempty"`
	// Problems are the waits of the object and of those that it depends on.
	Problems []Problem `json:"problems,omitempty"`
	// Hosts is set for a machine that has no host.
	Hosts *Hosts `json:"hosts,omitempty"`
	// Machines is set for a host that machines could wait for.
	Machines *Machines `json:"machines,omitempty"`
}

// Fact is a property of the object.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Problem is something that is not as desired.
type Problem struct {
	// Object that has the problem, such as ElementalHost box-1.
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Since is when the condition changed to what it is; nil if that is unknown.
	Since *metav1.Time `json:"since,omitempty"`
	// Remedy is what a person can do.
	Remedy string `json:"remedy"`
}

// Hosts are the hosts of the namespace, by what rules them out for a machine.
type Hosts struct {
	// Required is the only host that the machine may have, because its address is the
	// endpoint; blank if there is no such host.
	Required string `json:"required,omitempty"`
	// Total is the number of hosts in the namespace.
	Total int `json:"total"`
	// RuledOut are sorted by their numbers of hosts, the largest first.
	RuledOut []Group `json:"ruledOut,omitempty"`
	// Matching is the number of hosts that the machine could get now, and MatchingNames
	// are the first of them.
	Matching      int      `json:"matching"`
	MatchingNames []string `json:"matchingNames,omitempty"`
	// Remedy is set if the machine should not wait: hosts match, or there are none.
	Remedy string `json:"remedy,omitempty"`
}

// Group are hosts that one reason rules out.
type Group struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Remedy string `json:"remedy"`
	// Hosts are the first of them, by name.
	Hosts []Term `json:"hosts"`

	// subject is the host, if there is only one, or the first of them with the labels that it lacks.
	subject remedy.Subject
}

// Term is the first term that rules a host out for a machine. Name is that of the other one.
type Term struct {
	Name    string `json:"name"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// Machines are the machines that have no host, by whether they could get this one.
type Machines struct {
	// Waiting is the number of machines of the namespace that have no host.
	Waiting int `json:"waiting"`
	// Examined are the first of them, with the term that rules the host out; blank if the
	// host matches.
	Examined []Term `json:"examined,omitempty"`
}

func (r *Report) fact(name, value string) {
	if value != "" {
		r.Facts = append(r.Facts, Fact{name, value})
	}
}

// problem adds the condition, unless its reason is there already: conditions repeat each
// other.
func (r *Report) problem(object string, c metav1.Condition, s remedy.Subject) {
	for _, known := range r.Problems {
		if known.Object == object && known.Reason == c.Reason {
			return
		}
	}
	p := Problem{Object: object, Reason: c.Reason, Message: c.Message, Remedy: remedy.For(c.Reason, s)}
	if !c.LastTransitionTime.IsZero() {
		p.Since = c.LastTransitionTime.DeepCopy()
	}
	r.Problems = append(r.Problems, p)
}

// unseen adds the problem of an object without conditions.
func (r *Report) unseen(object string) {
	r.Problems = append(r.Problems, Problem{
		Object: object, Reason: "NotReconciled", Message: "The object has no conditions: no manager has looked at it",
		Remedy: "Look at the manager: kubectl -n elemental-system get pods; if it has a --watch-filter, label the object for it",
	})
}
