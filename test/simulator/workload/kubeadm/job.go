package kubeadm

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/executor"
)

// Job is what bootstrap data asks kubeadm for.
type Job struct {
	// Files are written first.
	Files []bootstrap.File
	// Exactly one of the two is set.
	Init *Init
	Join *Join
}

// command is how Cluster API's kubeadm bootstrap provider calls kubeadm.
var command = regexp.MustCompile(`(?m)^[^#\n]*\bkubeadm (init|join)\b[^\n]*--config[ =](\S+)`)

// script is the file with kubeadm's call where the data is Ignition's.
const script = "/etc/kubeadm.sh"

// Read reads bootstrap data. id and hostname are what templates in it may ask for. An error is the data's.
func Read(data []byte, format, id, hostname string) (*Job, error) {
	config, _, err := bootstrap.Parse(data, format, executor.Variables(id, hostname))
	if err != nil {
		return nil, fmt.Errorf("reading the bootstrap data: %w", err)
	}
	text := bootstrap.Script(config.Commands)
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

// File returns the content that the data gives a file.
func (j *Job) File(name string) ([]byte, error) {
	content, ok := find(j.Files, name)
	if !ok {
		return nil, fmt.Errorf("the bootstrap data does not hold %s", name)
	}
	return content, nil
}

// find returns the last one: a later one replaces it.
func find(files []bootstrap.File, name string) (content []byte, ok bool) {
	for _, file := range files {
		if file.Path == name {
			content, ok = file.Content, true
		}
	}
	return content, ok
}
