-- pressure.lua - the steps of the protocol (see pressure.py): returns a status and values
--
-- KEYS are in the order of SUFFIXES, ARGV as Queue._run passes them.

local queue, bound, producer, consumer, producer_free, consumer_free, produced_messages,
  produced_bytes, consumed_messages, consumed_bytes, not_full, closed, producer_lease,
  consumer_lease, created = unpack(KEYS)
local action, name, nonce, identity, lease, last, body = unpack(ARGV)
local call = redis.call
local roles = {
  producer = {who = producer, free = producer_free, lease = producer_lease},
  consumer = {who = consumer, free = consumer_free, lease = consumer_lease},
}
local role = roles[name]

local function has(key) return call('EXISTS', key) == 1 end
local function now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function holder(of)
  local till, by, who = string.match(call('GET', of.lease) or '', '^(%d+) (%S+) (.*)$')
  return tonumber(till), by, who
end
local function held()
  local till, by = holder(role)
  return by == nonce
end
local function mark()
  call('SET', role.lease, string.format('%.0f %s %s', now() + lease, nonce, identity))
end
local function free(of)
  call('DEL', of.lease)
  call('LPUSH', of.free, 1)
end
-- over(of) - whether its lease is over, and is that of the client that is named
local function over(of)
  local till, by, who = holder(of)
  return till and till < now() and call('GET', of.who) == who
end
-- fits(change) - whether there is room for a message once the queue has so many more
local function fits(change)
  local most = tonumber(call('GET', bound))
  return most == 0 or call('LLEN', queue) + change < most
end
local function room()
  call('LPUSH', not_full, 0)
  call('LTRIM', not_full, 0, 0)
end
local function count(messages, bytes, body)
  call('INCR', messages)
  call('INCRBY', bytes, #body)
end
local function fail(status)
  free(role)
  return {status}
end
-- take_role(status) - take the role; if it is not free, return an answer, `status` at last
local function take_role(status)
  if call('RPOP', role.free) or over(role) then return end
  if last ~= '1' then return {'wait'} end
  return {status, name, call('GET', role.who) or ''}
end

-- Redis rolls nothing back when a call fails: so the one that stores or takes the message comes
-- behind all that may fail. doctor mends the tokens
local act = {}

function act.create()
  if has(bound) then return {'exists'} end
  for _, key in ipairs({queue, producer_free, consumer_free, not_full, closed}) do
    if has(key) then return {'leavings'} end
  end
  call('SET', bound, body)
  call('SET', created, nonce)
  call('LPUSH', producer_free, 1)
  call('LPUSH', consumer_free, 1)
  call('LPUSH', not_full, 1)
  return {'ok'}
end

function act.look()
  if not has(bound) then return {'missing'} end
  local found = {'ok', tostring(call('LLEN', queue)), has(closed) and '1' or '0'}
  local keys = {created, produced_messages, produced_bytes, consumed_messages, consumed_bytes}
  for _, key in ipairs(keys) do
    found[#found + 1] = call('GET', key) or key ~= created and '0' or ''
  end
  return found
end

function act.take()
  if not has(bound) then return {'missing'} end
  if body == 'open' and has(closed) then return {'closed'} end
  local answer = take_role('busy')
  if answer then return answer end
  call('SET', role.who, identity)
  mark()
  return {'ok'}
end

function act.give()
  if held() then free(role) end
  return {'ok'}
end

function act.put()
  if not held() then return {'lost'} end
  if not has(bound) then return fail('gone') end
  -- Before anything else is changed: a Redis without memory refuses it
  mark()
  local more = fits(1)
  if not call('RPOP', not_full) then
    return last == '1' and fail('full') or {'wait'}
  end
  count(produced_messages, produced_bytes, body)
  call('LPUSH', queue, body)
  if more then room() end
  free(role)
  return {'ok'}
end

function act.peek()
  if not held() then return {'lost'} end
  if not has(bound) then return fail('gone') end
  local found = call('LINDEX', queue, -1)
  if not found and has(closed) then return fail('closed') end
  if not found and last == '1' then return fail('empty') end
  -- Redis refuses a SET if its memory is full, but not behind another change
  call('DEL', role.lease)
  mark()
  return found and {'ok', found} or {'wait'}
end

function act.get()
  local found = act.peek()
  if found[1] ~= 'ok' then return found end
  count(consumed_messages, consumed_bytes, found[2])
  if fits(-1) then room() end
  call('RPOP', queue)
  free(role)
  return found
end

function act.close()
  if not held() then return {'lost'} end
  if not has(bound) then return fail('gone') end
  if has(closed) then return fail('closed') end
  call('LPUSH', closed, 0, 0)
  free(role)
  return {'ok'}
end

function act.condemn()
  if not has(bound) then return {'missing'} end
  call('DEL', bound)
  call('LPUSH', not_full, 0)
  call('LPUSH', closed, 0, 0)
  return {'ok'}
end

function act.bury()
  if has(bound) then return {'anew'} end
  local answer = take_role('stays')
  if answer then return answer end
  call('DEL', role.free, role.who, role.lease)
  if name == 'consumer' then
    call('DEL', not_full, closed, produced_messages, produced_bytes, consumed_messages,
      consumed_bytes, queue, created)
  end
  return {'ok'}
end

function act.doctor()
  local found, unused = {}, true
  local function say(state, text) found[#found + 1] = state .. text end
  for _, of in ipairs({'producer', 'consumer'}) do
    local it = roles[of]
    local till, by, who = holder(it)
    local known = call('GET', it.who) or 'nobody'
    -- Who lost its role to -f may have given it back, too
    call('LTRIM', it.free, 0, 0)
    if not has(it.free) and (has(bound) or has(it.who)) then
      local died, ours = over(it), till and known == who
      if died or body == 'force' and not ours then
        free(it)
        say(1, of .. ' ' .. known .. (died and ' has died: the role is free' or
          ' has lost the role'))
      else
        unused = false
        say(ours and 2 or 0, of .. ' ' .. known .. ' has the role' .. (ours and '' or
          ', without a lease'))
      end
    end
  end
  if has(bound) then
    if unused and not has(not_full) and fits(0) then
      room()
      say(1, 'was taken for full')
    end
    return found
  end
  local some = false
  -- Another program's delete leaves `created`
  for _, key in ipairs(KEYS) do some = some or key ~= created and has(key) end
  if some and body == 'force' and unused then
    call('DEL', unpack(KEYS))
    say(1, 'the rest of a queue that was deleted is gone')
  elseif some then
    say(0, 'is being deleted, or that was broken off')
  end
  return found
end

return act[action]()
