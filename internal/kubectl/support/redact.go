package support

import (
	"regexp"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

// leftOut stands for what is not given away.
const leftOut = redact.Mark

// redactor removes secrets from objects and texts.
type redactor struct {
	// whole are names of fields that are left out with all that is in them, and leaves are
	// names of fields whose texts are.
	whole, leaves *regexp.Regexp
	texts         *redact.Redactor
}

func newRedactor() *redactor {
	return &redactor{
		whole:  regexp.MustCompile(`(?i)^(env|envfrom|variables|files|users|data|stringdata|binarydata|kubeadmconfigspec|userdata)$`),
		leaves: regexp.MustCompile(`(?i)^(content|.*passw(or)?d|.*token|.*secret|.*private_?key|.*access_?key|.*certificate_?key|.*credentials?|.*kubeconfig)$`),
		texts:  redact.ForObjects(),
	}
}

// text returns a text without what looks like a secret.
func (r *redactor) text(text string) string {
	text, _ = r.texts.Text(text)
	return text
}

// object removes secrets, and what people wrote, from an object as the API server sent it.
func (r *redactor) object(kind string, o map[string]any) {
	if metadata, ok := o["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	switch kind {
	case "KubeadmConfig":
		// It is what bootstrap data is made from.
		delete(o, "spec")
	case "ElementalHost":
		if spec, ok := o["spec"].(map[string]any); ok {
			r.reasons(spec, o)
		}
	}
	r.walk(o)
}

// reasons leaves out the reasons that people gave for what they did with a host, also where
// messages repeat them.
func (r *redactor) reasons(spec, o map[string]any) {
	for _, operation := range []string{"cordon", "maintenance", "fence"} {
		of, ok := spec[operation].(map[string]any)
		if !ok {
			continue
		}
		reason, _ := of["reason"].(string)
		if status, ok := o["status"].(map[string]any); ok && reason != "" {
			replaceMessages(status, reason)
		}
		of["reason"] = leftOut
	}
}

func replaceMessages(status map[string]any, text string) {
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if message, ok := condition["message"].(string); ok {
			condition["message"] = strings.ReplaceAll(message, text, leftOut)
		}
	}
}

// walk leaves out fields by their names, and cleans all texts.
func (r *redactor) walk(o map[string]any) {
	for name, value := range o {
		switch {
		case isEmpty(value):
		case name == "annotations":
			o[name] = namesOf(value)
		case r.whole.MatchString(name), r.leaves.MatchString(name) && !isObject(value):
			o[name] = leftOut
		default:
			o[name] = r.value(value)
		}
	}
}

// namesOf returns annotations without their values, which may be anything.
func namesOf(annotations any) any {
	list, ok := annotations.(map[string]any)
	if !ok {
		return leftOut
	}
	for name, value := range list {
		if !isEmpty(value) {
			list[name] = leftOut
		}
	}
	return list
}

func (r *redactor) value(value any) any {
	switch v := value.(type) {
	case string:
		return r.text(v)
	case map[string]any:
		r.walk(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	}
	return value
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return v == nil || v == ""
	}
}
