package native

import "github.com/gopherqueue/gq/internal/auth"

// access is what a call needs.
type access struct {
	needs auth.Scope // one of these on the queue it is about
	whole bool       // on all queues
	lists bool       // names no queue: others' things are left out rather than refused
	open  bool       // anyone may
	body  string     // $QUEUE, $JOB (running), $DONE (ended), $LEASE and $NEW are filled in
}

const anyScope = auth.Submit | auth.Work | auth.Read | auth.Admin

// rpcAccess has a row for every RPC.
var rpcAccess = map[string]access{
	"JobsService/Submit":      {needs: auth.Submit, body: `{"spec":{"queue":"$QUEUE","type":"t"}}`},
	"JobsService/SubmitBatch": {needs: auth.Submit, body: `{"specs":[{"queue":"$QUEUE","type":"t"}]}`},
	"JobsService/SubmitGraph": {needs: auth.Submit, body: `{"drafts":[{"spec":{"queue":"$QUEUE","type":"t"}}]}`},
	"JobsService/Get":         {needs: auth.Read, body: `{"id":"$DONE"}`},
	"JobsService/List":        {needs: auth.Read, body: `{"query":{"queue":"$QUEUE"}}`},
	"JobsService/Update":      {needs: auth.Submit, body: `{"id":"$JOB","setTags":{"a":"b"}}`},
	"JobsService/Cancel":      {needs: auth.Submit, body: `{"id":"$JOB"}`},
	"JobsService/CancelWhere": {needs: auth.Submit, body: `{"query":{"queue":"$QUEUE","statuses":["STATUS_DELAYED"]}}`},
	"JobsService/Replay":      {needs: auth.Submit, body: `{"id":"$DONE"}`},
	"JobsService/Wait":        {needs: auth.Read, body: `{"id":"$DONE"}`},
	"JobsService/Explain":     {needs: auth.Read, body: `{"id":"$DONE"}`},
	"JobsService/History":     {needs: auth.Read, body: `{"id":"$DONE"}`},
	"JobsService/Count":       {needs: auth.Read, body: `{"queues":["$QUEUE"]}`},
	"JobsService/Purge":       {needs: auth.Admin, body: `{"id":"$DONE"}`},
	"JobsService/PurgeWhere":  {needs: auth.Admin, body: `{"query":{"queue":"$QUEUE","statuses":["STATUS_DEAD_LETTER"]}}`},
	"JobsService/Stats":       {needs: auth.Read, lists: true, body: `{}`},

	"WorkersService/Claim":       {needs: auth.Work, body: `{"worker":"x","queues":["$QUEUE"],"types":["none"]}`},
	"WorkersService/Start":       {needs: auth.Work, body: `{"lease":{"id":"$LEASE"}}`},
	"WorkersService/Heartbeat":   {needs: auth.Work, body: `{"beats":[{"lease":{"id":"$LEASE"}}]}`},
	"WorkersService/Settle":      {needs: auth.Work, body: `{"outcomes":[{"lease":{"id":"$LEASE"},"complete":{}}]}`},
	"WorkersService/Work":        {needs: auth.Work},
	"WorkersService/ListWorkers": {needs: auth.Read, lists: true, body: `{}`},

	"QueuesService/GetQueue":    {needs: anyScope, body: `{"name":"$QUEUE"}`},
	"QueuesService/ListQueues":  {needs: auth.Read, lists: true, body: `{}`},
	"QueuesService/SetQueue":    {needs: auth.Admin, body: `{"name":"$QUEUE","maxDepth":1000}`},
	"QueuesService/PauseQueue":  {needs: auth.Admin, body: `{"name":"$QUEUE"}`},
	"QueuesService/ResumeQueue": {needs: auth.Admin, body: `{"name":"$QUEUE"}`},
	"QueuesService/ListPools":   {needs: auth.Read, whole: true, body: `{}`},
	"QueuesService/SetPool":     {needs: auth.Admin, whole: true, body: `{"name":"p","capacity":1}`},

	"SchedulesService/GetSchedule":    {needs: auth.Read, body: `{"name":"$QUEUE"}`},
	"SchedulesService/ListSchedules":  {needs: auth.Read, lists: true, body: `{}`},
	"SchedulesService/SetSchedule":    {needs: auth.Admin, body: `{"schedule":{"name":"$QUEUE","every":"3600s","template":{"queue":"$QUEUE","type":"t"}}}`},
	"SchedulesService/PauseSchedule":  {needs: auth.Admin, body: `{"name":"$QUEUE"}`},
	"SchedulesService/ResumeSchedule": {needs: auth.Admin, body: `{"name":"$QUEUE"}`},
	"SchedulesService/DeleteSchedule": {needs: auth.Admin, body: `{"name":"$QUEUE"}`},

	"EventsService/Subscribe": {needs: auth.Read, body: `{"queues":["$QUEUE"]}`},

	"AdminService/CreateToken":      {needs: auth.Admin, whole: true, body: `{"name":"$NEW","grants":[{"scopes":["read"],"queues":["*"]}]}`},
	"AdminService/ListTokens":       {needs: auth.Admin, whole: true, body: `{}`},
	"AdminService/RevokeToken":      {needs: auth.Admin, whole: true, body: `{"token":"none"}`},
	"AdminService/ListDeliveries":   {needs: auth.Read, lists: true, body: `{}`},
	"AdminService/RetryDelivery":    {needs: auth.Submit, body: `{"id":"$DELIVERY"}`},
	"AdminService/GetWebhookSecret": {needs: auth.Admin, whole: true, body: `{}`},
}

// routeAccess has a row for every route.
var routeAccess = map[string]access{
	"POST /v1/jobs":              {needs: auth.Submit, body: `{"queue":"$QUEUE","type":"t"}`},
	"POST /v1/jobs/batch":        {needs: auth.Submit, body: `{"jobs":[{"queue":"$QUEUE","type":"t"}]}`},
	"GET /v1/jobs":               {needs: auth.Read, body: `?queue=$QUEUE`},
	"POST /v1/jobs/cancel":       {needs: auth.Submit, body: `{"queue":"$QUEUE","states":["DELAYED"]}`},
	"POST /v1/jobs/purge":        {needs: auth.Admin, body: `{"queue":"$QUEUE","states":["DEAD_LETTER"]}`},
	"GET /v1/jobs/{id}":          {needs: auth.Read},
	"DELETE /v1/jobs/{id}":       {needs: auth.Admin},
	"PATCH /v1/jobs/{id}":        {needs: auth.Submit, body: `{"tags":{"a":"b"}}`},
	"POST /v1/jobs/{id}/cancel":  {needs: auth.Submit, body: `{}`},
	"POST /v1/jobs/{id}/replay":  {needs: auth.Submit},
	"GET /v1/jobs/{id}/events":   {needs: auth.Read},
	"GET /v1/jobs/{id}/explain":  {needs: auth.Read},
	"GET /v1/jobs/{id}/wait":     {needs: auth.Read, body: `?timeout=1ms`},
	"POST /v1/claim":             {needs: auth.Work, body: `{"worker":"x","queues":["$QUEUE"],"types":["none"]}`},
	"POST /v1/leases/{id}/start": {needs: auth.Work}, "POST /v1/leases/{id}/heartbeat": {needs: auth.Work},
	"POST /v1/leases/{id}/complete": {needs: auth.Work}, "POST /v1/leases/{id}/fail": {needs: auth.Work, body: `{"message":"x"}`},
	"POST /v1/leases/{id}/release": {needs: auth.Work, body: `{}`},

	"GET /v1/queues":                {needs: auth.Read, lists: true},
	"GET /v1/queues/{name}":         {needs: auth.Read},
	"PATCH /v1/queues/{name}":       {needs: auth.Admin, body: `{"max_depth":1000}`},
	"PUT /v1/queues/{name}":         {needs: auth.Admin, body: `{"max_depth":1000}`},
	"POST /v1/queues/{name}/pause":  {needs: auth.Admin},
	"POST /v1/queues/{name}/resume": {needs: auth.Admin},
	"GET /v1/pools":                 {needs: auth.Read, whole: true},
	"PUT /v1/pools/{name}":          {needs: auth.Admin, whole: true, body: `{"capacity":1}`},

	"GET /v1/schedules":                {needs: auth.Read, lists: true},
	"GET /v1/schedules/{name}":         {needs: auth.Read},
	"PUT /v1/schedules/{name}":         {needs: auth.Admin, body: `{"every":"1h","job":{"queue":"$QUEUE","type":"t"}}`},
	"POST /v1/schedules/{name}/pause":  {needs: auth.Admin},
	"POST /v1/schedules/{name}/resume": {needs: auth.Admin},
	"DELETE /v1/schedules/{name}":      {needs: auth.Admin},

	"GET /v1/workers": {needs: auth.Read, lists: true},
	"GET /v1/stats":   {needs: auth.Read, lists: true},
	"GET /v1/events":  {needs: auth.Read, body: `?queue=$QUEUE`}, "GET /v1/events/ws": {needs: auth.Read, body: `?queue=$QUEUE`},
	"GET /metrics": {needs: auth.Read, whole: true},

	"POST /v1/tokens":                         {needs: auth.Admin, whole: true, body: `{"name":"$NEW","grants":[{"scopes":["read"],"queues":["*"]}]}`},
	"GET /v1/tokens":                          {needs: auth.Admin, whole: true},
	"DELETE /v1/tokens/{name}":                {needs: auth.Admin, whole: true},
	"GET /v1/webhooks/deliveries":             {needs: auth.Read, lists: true},
	"POST /v1/webhooks/deliveries/{id}/retry": {needs: auth.Submit},
	"GET /v1/webhooks/secret":                 {needs: auth.Admin, whole: true},

	"GET /healthz": {open: true}, "GET /readyz": {open: true}, "GET /docs": {open: true}, "GET /openapi.json": {open: true},
}
