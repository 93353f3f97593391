package kubeadm

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
)

// Job is the kubeadm command in bootstrap data, with its configuration and files.
type Job struct {
	// Files are written before kubeadm runs.
	Files []bootstrapdata.File
	// Exactly one of Init and Join is set.
	Init *Init
	Join *Join
}

// command matches the kubeadm call of Cluster API's kubeadm bootstrap provider.
var command = regexp.MustCompile(`(?m)^[^#\n]*\bkubeadm (init|join)\b[^\n]*--config[ =](\S+)`)

// script is the file that contains the kubeadm call in Ignition data.
const script = "/etc/kubeadm.sh"

// Read parses bootstrap data. id and hostname are the values of template variables. Errors
// describe invalid data.
func Read(data []byte, format, id, hostname string) (*Job, error) {
	vars, err := bootstrap.Variables("/", id, hostname)
	if err != nil {
		return nil, err
	}
	config, _, err := parser.Parse(data, format, vars)
	if err != nil {
		return nil, fmt.Errorf("reading the bootstrap data: %w", err)
	}
	text := bootstrapdata.Script(config.Commands)
	if content, ok := find(config.Files, script); ok {
		text += string(content)
	}
	call := command.FindStringSubmatch(text)
	if call == nil {
		return nil, errors.New("the bootstrap data calls neither kubeadm init nor kubeadm join, which is all that a simulated host can do")
	}
	verb, name := call[1], call[2]
	content, ok := find(config.Files, name)
	if !ok {
		return nil, fmt.Errorf("kubeadm %s is to read %s, which the bootstrap data does not hold", verb, name)
	}
	documents, err := split(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	job := &Job{Files: config.Files}
	if verb == "init" {
		if job.Init, err = documents.init(); err == nil {
			job.Init.Node.Name = cmp.Or(job.Init.Node.Name, hostname)
		}
	} else if job.Join, err = documents.join(); err == nil {
		job.Join.Node.Name = cmp.Or(job.Join.Node.Name, hostname)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return job, nil
}

// File returns the content of a file in the data.
func (j *Job) File(name string) ([]byte, error) {
	content, ok := find(j.Files, name)
	if !ok {
		return nil, fmt.Errorf("the bootstrap data does not hold %s", name)
	}
	return content, nil
}

// find returns the content of the last file with a name, because later files replace earlier ones.
func find(files []bootstrapdata.File, name string) (content []byte, ok bool) {
	for _, file := range files {
		if file.Path == name {
			content, ok = file.Content, true
		}
	}
	return content, ok
}
