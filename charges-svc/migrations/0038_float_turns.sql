-- How often something was sent from a rail's float. Who sends next has seen the last number.
create table float_turns (
    rail text not null primary key,
    turn bigint not null
);
